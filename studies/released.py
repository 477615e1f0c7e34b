"""What released models ship, against what articles say of them: read from configs as their makers publish them.

python -m studies.released    judge what was read, and write results/released/released.json

The record has every value with its page. Schedules are those of tests/engines/check/released_configs.json.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ropewalk.measure.metrics.intervals import Estimate, share

from studies.claims import ARTICLE_2, ARTICLE_3, ARTICLE_5, LEVEL, POINTS, Claim, JudgedClaim, Unit, judge
from studies.records import read, write

STUDIES = Path(__file__).resolve().parent
PLACE = STUDIES / "results" / "released" / "released.json"
CONFIGS = STUDIES.parent / "tests" / "engines" / "check" / "released_configs.json"
READ, SCHEDULES = "read", "schedules of makers"
PLAIN = "plain rotation"
UNCHANGED = (None, "default", "mrope")  # rotation as trained, of one axis of positions or of three
EXACT = 1e-9  # rounding
KEY_HEADS, BASE = "key heads", "base"
MANY_MAKERS = "of makers whose models change the rotation, the share that uses YaRN"


class Shipped(NamedTuple):
    """A value of a released model, and what an article says that it is."""

    model: str
    key: str
    said: float

    def __str__(self) -> str:
        """As a sum that is 0 where the article is right."""
        return f"minus the difference of {self.model}'s {self.key} from {self.said:,.0f}"


CLAIMS = (
    Claim("eight-key-heads", "Llama 2 70B and Mistral 7B use grouped queries with eight key heads.", ARTICLE_2,
          ((Shipped("Llama 2 70B", KEY_HEADS, 8),), (Shipped("Mistral 7B", KEY_HEADS, 8),)), -EXACT,
          theirs="'seem to'",
          note="The keys are read from copies of the makers' configs. Llama 2 7B and 13B have as many key heads as "
          "query heads."),
    Claim("code-llama-base", "Code Llama is trained on with a base of 1,000,000.", "arXiv:2308.12950",
          ((Shipped("Code Llama 7B", BASE, 1_000_000),),), -EXACT),
)  # fmt: skip
PUBLISHED = "what makers publish"
YARN_CLAIM = Claim(
    "yarn-mostly",
    "Industry mostly uses YaRN: it is what more than half of the makers use whose models change the rotation.",
    f"{ARTICLE_3}; {ARTICLE_5}",
    ((MANY_MAKERS,),),
    0.5,
    note="A maker counts once, with YaRN where any of its configs or model cards states it. The makers are those of "
    "the configs that Ropewalk's `check` is tested on, chosen for other reasons: no random sample, and of 2023 to "
    "2026. Most makers outside the count change nothing but the base.",
)


def maker_of(source: str) -> str:
    """The account that a config or a model card lies in."""
    found = re.search(r"of ([\w.-]+)/", source)
    if found is None:
        raise ValueError(f"no account in {source!r}")
    return found[1]


def schedule_of(config: Mapping[str, Any]) -> str:
    """How a config changes the rotation of a trained model."""
    text = config.get("text_config") or config
    scaling = text.get("rope_parameters") or text.get("rope_scaling") or config.get("rope_scaling") or {}
    kinds = scaling.values() if scaling and all(isinstance(one, Mapping) for one in scaling.values()) else [scaling]
    changed = [name for one in kinds if (name := one.get("rope_type") or one.get("type")) not in UNCHANGED]
    if text.get("dual_chunk_attention_config"):
        changed.append("dual chunks")
    return " and ".join(map(str, dict.fromkeys(changed))) or PLAIN


def schedules(configs: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """What each maker's configs and cards state, without repetition."""
    found: dict[str, dict[str, None]] = {}
    for one in configs:
        found.setdefault(maker_of(one["source"]), {})[schedule_of(one["config"])] = None
    return {maker: list(stated) for maker, stated in sorted(found.items())}


def verdicts(kept: Mapping[str, Any]) -> list[JudgedClaim]:
    """What was read of every claim."""
    rows = {(row["model"], row["key"]): float(row["value"]) for row in kept[READ]}
    exact = [
        judge(
            claim, lambda terms, _: _sum(terms, rows), Unit(claim.sums[0][0].key, digits=0), drawn="what makers publish"
        )
        for claim in CLAIMS
    ]
    stated = kept[SCHEDULES]
    return [
        judge(YARN_CLAIM, lambda _, level: yarn_share(stated, level), POINTS, drawn=f"{len(stated)} makers"),
        *exact,
    ]


def _sum(terms: Sequence[Shipped], rows: Mapping[tuple[str, str], float]) -> Estimate:
    value = -sum(abs(rows[term.model, term.key] - term.said) for term in terms)
    return Estimate(value, value, value, 1)


def yarn_share(stated: Mapping[str, Sequence[str]], level: float = LEVEL) -> Estimate:
    """Of the makers that change the rotation."""
    changing = [names for names in stated.values() if any(name != PLAIN for name in names)]
    return share(sum("yarn" in names for names in changing), len(changing), level=level)


def main() -> None:
    """Write the claims, with what was read."""
    kept = {READ: read(PLACE)[READ], SCHEDULES: schedules(json.loads(CONFIGS.read_text("utf-8")))}
    write(PLACE, kept)


if __name__ == "__main__":
    main()
