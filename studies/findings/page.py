"""The pages of the findings, in English and in Chinese, with the parts that follow from the records."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from studies.findings import prose
from studies.findings.errors import errors
from studies.findings.finding import Finding
from studies.findings.listing import findings, measured, picture
from studies.findings.measured import RESULTS
from studies.findings.picture import mark_of
from tools.generated_part import with_part
from tools.markdown_table import table_of

ENGLISH, CHINESE, PICTURES = RESULTS / "findings.md", RESULTS / "findings.zh.md", RESULTS / "findings"


def pages() -> dict[Path, str]:
    """Both, as the records say them."""
    return {ENGLISH: _filled(ENGLISH, _english()), CHINESE: _filled(CHINESE, _chinese())}


def _filled(place: Path, parts: dict[str, str]) -> str:
    text = place.read_text("utf-8")
    for name, part in parts.items():
        text = with_part(text, name, part)
    return text


def _english() -> dict[str, str]:
    return {
        "real models": _list(prose.real_models(measured())),
        "models": f"{prose.MODELS}\n\n{prose.VERDICTS}",
        "findings": table_of(
            ("", "finding", "figures [95 %]", "models", "verdict"),
            [
                (
                    one.label,
                    f"[{one.english.title}](#{one.label.lower()})",
                    one.english.effect,
                    one.english.models,
                    _kinds(one),
                )
                for one in findings()
            ],
        ),
        "sections": "\n\n".join(_section(one) for one in findings()),
        "errors": table_of(
            ("what an article says", "what the records say", "verdict"),
            [(one.said, one.is_so, f"{one.verdict}") for one in errors(measured())],
        ),
    }


def _chinese() -> dict[str, str]:
    return {
        "real models": _list(prose.real_models_chinese(measured())),
        "models": f"{prose.MODELS_CHINESE}\n\n{prose.VERDICTS_CHINESE}",
        "findings": table_of(
            ("", "结论", "数字 [95 %]", "模型", "判定"),
            [
                (
                    one.label,
                    one.chinese.title,
                    one.chinese.text,
                    one.chinese.models,
                    "；".join(verdict.chinese for verdict in one.verdicts),
                )
                for one in findings()
            ],
        ),
        "errors": table_of(
            ("文章说", "记录说", "判定"),
            [(one.said_chinese, one.is_so_chinese, one.verdict.chinese) for one in errors(measured())],
        ),
    }


def _list(sentences: Sequence[str]) -> str:
    return "\n".join(f"- {one}" for one in sentences)


def _kinds(one: Finding) -> str:
    return "; ".join(
        f"{verdict.on}: **{verdict.kind}**" if verdict.on else f"**{verdict.kind}**" for verdict in one.verdicts
    )


def _section(one: Finding) -> str:
    claims = ", ".join(f"`{name}`" for name in one.claims)
    return "\n\n".join(
        [
            f'<a id="{one.label.lower()}"></a>\n\n### {one.label}. {one.english.title}',
            f"{_kinds(one)}. On {one.english.models}.",
            one.english.text,
            f"![{one.english.title}]({PICTURES.name}/{one.picture})",
            f"It rests on {claims}.",
        ]
    )


def stale() -> list[str]:
    """What is not as the records say: pages, and pictures that are drawn from other figures."""
    texts = [place.name for place, text in pages().items() if place.read_text("utf-8") != text]
    return texts + [one.picture for one in findings() if mark_of(PICTURES / one.picture) != picture(one).mark]


def write() -> None:
    """Both pages, and the pictures of which the figures have changed."""
    PICTURES.mkdir(exist_ok=True)
    for place, text in pages().items():
        place.write_text(text, "utf-8")
    for one in findings():
        if mark_of(PICTURES / one.picture) != picture(one).mark:
            picture(one).save(PICTURES / one.picture)
