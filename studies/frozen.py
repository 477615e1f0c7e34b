"""What is stated of each claim: its bound, what is compared, and verdicts that no figure decides.

It is frozen in bounds.json. A claim that is not there is not judged; one that has changed is refused, until the change
is dated there with its reason.

python -m studies.frozen                     add the claims that are new
python -m studies.frozen NAME... --because WHY   date a change of claims, named STUDY/CLAIM
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

from studies.claims import STATED, Claim, JudgedClaim, in_words

PLACE = Path(__file__).resolve().parent / "bounds.json"
KIND, WHY, CHANGES = "verdict", "why", "changes"


@cache
def frozen() -> dict[str, Any]:
    """Everything that is stated, by study and claim."""
    return dict(json.loads(PLACE.read_text("utf-8")))


def stated(claim: Claim) -> dict[str, Any]:
    """What of a claim is frozen."""
    return {"bound": round(claim.bound, 9), "compared": [in_words(terms) for terms in claim.sums]}


def settled(study: str, judged: JudgedClaim) -> JudgedClaim:
    """A claim with the verdict that is stated for it, if one is; refused if it is not the frozen one."""
    name = f"{study}/{judged.claim.name}"
    entry, now = frozen().get(name), stated(judged.claim)
    if entry is None:
        sys.exit(f"{name} is not in {PLACE.name}: freeze its bound before it is measured: python -m studies.frozen")
    different = [key for key, value in now.items() if entry[key] != value]
    if different:
        remedy = f"python -m studies.frozen {name} --because WHY"
        sys.exit(f"{name} has another {', '.join(different)} than {PLACE.name}; date the change: {remedy}")
    if entry.get(KIND):
        assert entry[KIND] in STATED, entry
        return replace(judged, word=entry[KIND], reason=entry[WHY])
    return judged


def freeze(claims: Mapping[str, Claim], changed: Sequence[str] = (), because: str = "") -> dict[str, Any]:
    """All entries: those of new claims as of today, and those that changed with the reason."""
    entries, today = dict(frozen()), date.today().isoformat()
    for name, claim in claims.items():
        now = stated(claim)
        if name not in entries:
            entries[name] = {**now, "since": today}
        elif name in changed:
            before = {key: entries[name][key] for key, value in now.items() if entries[name][key] != value}
            entries[name] = {**entries[name], **now}
            entries[name][CHANGES] = [*entries[name].get(CHANGES, ()), {"on": today, "was": before, WHY: because}]
    return dict(sorted(entries.items()))


def _claims() -> dict[str, Claim]:
    """Every claim that a study can judge today."""
    from studies.catalog import STUDIES

    found: dict[str, Claim] = {}
    for study in STUDIES:
        if study.place.exists():
            found |= {f"{study.name}/{one.claim.name}": one.claim for one in study.verdicts(study.read(study.place))}
    return found


def main() -> None:
    """Freeze what is new, and date what has changed."""
    parser = argparse.ArgumentParser(prog="python -m studies.frozen", description=__doc__.splitlines()[0])
    parser.add_argument("changed", nargs="*", metavar="STUDY/CLAIM")
    parser.add_argument("--because", default="")
    asked = parser.parse_args()
    claims = _claims()
    unknown = [name for name in asked.changed if name not in claims]
    if unknown or bool(asked.changed) != bool(asked.because):
        parser.error(f"no claim {unknown[0]}" if unknown else "claims that changed and --because go together")
    PLACE.write_text(
        json.dumps(freeze(claims, asked.changed, asked.because), indent=1, ensure_ascii=False) + "\n", "utf-8"
    )


if __name__ == "__main__":
    main()
