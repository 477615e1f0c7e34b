"""`rw.diagnose`: why an extension works or fails, from inside the model."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import RenderableType

from ropewalk.extension.extension import Extension
from ropewalk.extension.notation import length as in_tokens
from ropewalk.files import finite, record_json
from ropewalk.hf.attach.extend import require_beyond
from ropewalk.hf.load_options import UNSTATED, LoadOptions
from ropewalk.hf.probe.facts import trained_len
from ropewalk.measure.arguments import RunOptions, whole_number
from ropewalk.measure.diagnostics.diagnosis import BOTH_SIDES, Diagnosis, measure_sides
from ropewalk.measure.lines import line_of
from ropewalk.measure.opened_model import open_model, stated_lengths
from ropewalk.measure.progress import showing_progress
from ropewalk.measure.report.diagnosis import MEASURES, as_json, findings, numbers, title, write_diagnosis
from ropewalk.measure.report.drawing import name_of
from ropewalk.measure.report.written_tables import PageTable
from ropewalk.measure.result import TERMINAL_WIDTH, MeasuredResult
from ropewalk.methods.spec import Json
from ropewalk.models import NAME

DIAGNOSIS_TIMES = 4  # length by default, in trained lengths


@dataclass(frozen=True, repr=False)
class DiagnosisResult(MeasuredResult):
    """The result of `rw.diagnose`; `diagnosis` has every curve of both sides, the base model first."""

    diagnosis: Diagnosis

    @property
    def title(self) -> str:
        """What was diagnosed."""
        return title(self.diagnosis)

    @property
    def sentences(self) -> list[str]:
        """The findings."""
        return findings(self.diagnosis)

    @property
    def table(self) -> PageTable:
        """Each number within the trained length and beyond, side by side."""
        return numbers(self.diagnosis)

    @property
    def brief(self) -> PageTable:
        """The same numbers under shorter heads."""
        head = [f"{name_of(side.line)}, {where}" for side in self.diagnosis.sides for where in ("within", "beyond")]
        return PageTable(("mean", *head), self.table.rows)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A record for each side and number: within the trained length, and beyond."""
        return [
            {"extension": side.line, "number": name, "within": finite(within), "beyond": finite(beyond)}
            for side in self.diagnosis.sides
            for name, (_, of) in MEASURES.items()
            for within, beyond in [of(side, self.diagnosis)]
        ]

    def for_terminal(self) -> Iterator[RenderableType]:
        """The numbers, and the findings."""
        yield self.table.for_terminal(self.title, whole=(0,))
        for words in self.sentences:
            yield textwrap.fill(words, TERMINAL_WIDTH, subsequent_indent="  ")
        yield ""

    def to_dict(self) -> Json:
        """Every number, as `diagnosis.json`."""
        return record_json(as_json(self.diagnosis))

    def write(self, folder: str | Path, *, command: str = "", pictures: str = "") -> Path:
        """Write `diagnose.html` with its figures, and `diagnosis.json`; return the path of the page."""
        return write_diagnosis(self.diagnosis, folder, command=command, pictures=pictures)


def diagnose(
    model: Any = NAME,
    extension: str | Extension = "",
    *,
    length: int | str | None = None,
    corpus: str = "stdlib",
    texts: int = 2,
    options: LoadOptions = UNSTATED,
) -> DiagnosisResult:
    """Look inside a model with and without an extension: angles, logits, entropy, attention, hidden states, sinks.

        print(rw.diagnose("model", "rerope", length=512))

    Args:
        model: as in `rw.compare`.
        extension: a line, or an `Extension`; without one the base model is diagnosed alone.
        length: in tokens (1024 or "1k"); by default 4 times the trained length.
        corpus: held-out text.
        texts: how many texts the losses are averaged over; everything else is measured on the first one.
        options: a `LoadOptions`, or a `RunOptions` with `tokenizer` and `progress`.
    """
    run, texts = RunOptions.of(options), whole_number("texts", texts, least=1)
    line = "" if extension == "" else line_of(extension)
    asked = None if length is None else in_tokens(str(length), "length")
    run.check(model, unused=("workers", "ray", "after_round"))
    if asked is not None and (stated := stated_lengths(model, run)):
        require_beyond("length", asked, stated.trained, BOTH_SIDES)
    with open_model(model, run) as host:
        longest = DIAGNOSIS_TIMES * trained_len(host.model) if asked is None else asked
        subject = host.subject(corpus, longest)
        with showing_progress("diagnosing", shown=run.progress) as bar:
            return DiagnosisResult(measure_sides(subject, line, texts=texts, progress=bar))
