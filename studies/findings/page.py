"""The pages of the findings, in English and in Chinese, with the parts that follow from the records."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from string import ascii_uppercase

from studies.catalog import STUDIES, Study, judged
from studies.findings import prose
from studies.findings.errors import errors
from studies.findings.finding import Finding
from studies.findings.listing import findings, measured, picture
from studies.findings.measured import RESULTS
from studies.findings.picture import mark_of
from tools.generated_part import with_part
from tools.markdown_table import table_of

CITED = re.compile(r"article (\d)|(?:kexue\.fm/|; )(\d{4})|(arXiv:[\d.]+\d)")  # in the source of a claim
OUR_ARTICLE = "9577"  # of kexue.fm: article 4
TIMES = {
    "seconds": "数秒", "3 minutes of one core": "单核 3 分钟", "15 minutes of one core": "单核 15 分钟",
    "20 minutes of one core": "单核 20 分钟", "30 minutes of one core": "单核 30 分钟",
    "half an hour of one core": "单核半小时", "an hour of one core": "单核 1 小时",
    "two hours of one core": "单核 2 小时",
    "eleven hours of one core": "单核 11 小时", "a day of one core": "单核 1 天", "days of one core": "单核数天",
    "days of one core, 18 minutes of a large GPU": "单核数天，或大型 GPU 18 分钟",
    "25 minutes of one core; the training took 6 hours": "单核 25 分钟，此前训练 6 小时",
}  # fmt: skip
MEASURED_ON = {"SmolLM2": "real-smollm2", "3100 万": "larger"}  # models that a finding names, and their studies
NOTES = {13: "（6 层；3 层的记录来自提交 3e18875，见 `studies/results/qk-bias-3-layers`，今天的命令不再训练它们）"}
ENGLISH, CHINESE, PICTURES = RESULTS / "findings.md", RESULTS / "findings.zh.md", RESULTS / "findings"


def pages() -> dict[Path, str]:
    """Both, as the records say them."""
    return {ENGLISH: _filled(ENGLISH, _english()), CHINESE: _filled(CHINESE, _chinese()).replace(" %", "%")}


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
                    _chinese_kinds(one),
                )
                for one in findings()
            ],
        ),
        "commands": _commands(),
        "errors": table_of(
            ("文章说", "实测结果", "判定"),
            [(one.said_chinese, one.is_so_chinese, one.verdict.chinese) for one in errors(measured())],
        ),
    }


def _chinese_kinds(one: Finding) -> str:
    return "；".join(verdict.chinese for verdict in one.verdicts)


def sources(one: Finding) -> str:
    """The articles and papers whose claims a finding rests on, in Chinese: the five articles first."""
    of_claims = {f"{study.name}/{claim.claim.name}": claim.claim.source for study, claim in judged()}
    cited = [match.groups() for name in one.claims for match in CITED.finditer(of_claims[name])]
    articles = sorted({article or "4" for article, kexue, _ in cited if article or kexue == OUR_ARTICLE})
    kexue = sorted({number for _, number, _ in cited if number})
    papers = sorted({paper for *_, paper in cited if paper})
    return "、".join([*(f"文章 {number}" for number in articles), *(f"kexue.fm/{number}" for number in kexue), *papers])


def _commands() -> str:
    """Which commands measure each finding anew, then the commands, each once."""
    lettered = dict.fromkeys(line for one in findings() for line in commands(one))
    letters = {line: ascii_uppercase[place] for place, line in enumerate(lettered)}
    rows = [
        (
            sources(one),
            one.chinese.title,
            f"{one.label}：{_chinese_kinds(one)}",
            "、".join(letters[line] for line in commands(one)) + NOTES.get(one.number, ""),
        )
        for one in findings()
    ]
    table = table_of(("出处", "结论", "数字与判定", "命令"), rows)
    return f"{table}\n\n{_list([f'**{letter}** {line}' for line, letter in letters.items()])}"


def commands(one: Finding) -> list[str]:
    """How everything that a finding rests on is measured anew, how long that takes, and the extra that it needs."""
    of_claims = {f"{study.name}/{claim.claim.name}": study for study, claim in judged()}
    by_name = {study.name: study for study in STUDIES}
    named = [by_name[name] for word, name in MEASURED_ON.items() if word in one.chinese.models]
    studies = {study.name: study for study in (*named, *(of_claims[name] for name in one.claims))}
    return [f"`{study.command}`（{_needs(study)}）" for study in studies.values()]


def _needs(study: Study) -> str:
    return f"{TIMES[study.time]}，需要 `{study.extra}`" if study.extra else TIMES[study.time]


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
