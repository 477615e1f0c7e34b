"""How verbs print: reports with their options, and `--json` with its keys.

With `--json` the output stream has one JSON object and nothing else; a number that is infinite or was not measured is
null. The keys are those of docs/command-line.md, which is written from here; a key is added but never renamed.
"""

from __future__ import annotations

import json
import shlex
import sys
import webbrowser
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from ropewalk.files import record_json

if TYPE_CHECKING:
    from ropewalk.measure.result import MeasuredResult


def drawable(pictures: str) -> str:
    """The formats, if they are known and matplotlib is there: refused before anything is measured."""
    if pictures:
        from ropewalk.measure.report.drawing.paper import formats_of

        formats_of(pictures)
    return pictures


Out = Annotated[str, typer.Option("--out", "-o", metavar="FOLDER", help="where the report is written")]
Open = Annotated[bool, typer.Option("--open", help="show the page in the browser")]
Pictures = Annotated[
    str,
    typer.Option(
        "--pictures",
        metavar="FORMATS",
        callback=drawable,
        help="draw every figure for paper too, by matplotlib: svg, pdf and png, separated by commas",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="print one JSON object and nothing else")]

FOLDER = "where the files are; the report and a JSON file with all other keys are among them"
COMMAND, MADE, MARKS = "the command line", "when, where and with which versions", "hashes of model, tokenizer and texts"
EXTENSION = "the extension that was applied, as `rw.Extension.from_json` reads it"
COMPARED: Mapping[str, str] = {
    "folder": FOLDER,
    "command": COMMAND,
    "made": MADE,
    "seconds": "of measuring, summed over processes",
    "marks": MARKS,
    "trained_len": "the length at which the base model sets the standard",
    "own_schedule": "of the checkpoint; empty for plain RoPE",
    "lengths": "lengths that were measured, in tokens",
    "projects": "of the texts whose losses are compared",
    "standard": "what losses are compared with, of the base model: at its `trained length`, or under a `window` of it",
    "tasks": "tasks that were measured, with their parameters",
    "candidates": "the base model first: `line`, `extension`, `idle` (slots that no layer uses), `change` (of loss),"
    " `cache_bytes`, `slowdown`, `verdict`, `reach`, `rows` (numbers and samples by task and length), `failures`",
    "last_alone": "the unchanged model on as many last tokens as it was trained on: `line`, `change`, `numbers`;"
    " null where texts are no longer",
    "predictions": "which loss predicts the scores: rank correlations over extensions, with intervals",
}
KEYS: Mapping[str, Mapping[str, str]] = {
    "compare": COMPARED,
    "compare --all": {
        **COMPARED,
        "leaderboard": "`target_len`; `rounds`, and the texts of those that were `planned`; `entries`, the lowest loss"
        " first; `dropped` (`round`, `texts`, `loss`, `rival`, `behind`, `threshold`); `left_out` with `why`",
    },
    "compare --redo": {
        "line": "the extension of the row",
        "current": "whether its formulas and tasks are those of this version",
        "figures": "`name`, `before` (in the row), `now`, `verdict`: `equal`, `within the interval`, `within 0.01`"
        " (nats, of one text) or `differs`",
        "agrees": "whether none differs",
    },
    "diagnose": {
        "folder": FOLDER,
        "command": COMMAND,
        "facts": "of the model",
        "length": "of the texts, in tokens",
        "texts": "that were read",
        "changes": "of the loss by position, against the base model",
        "sides": "the base model first: `line`, `extension`, `pairs`, `losses`, `entropy`, `last`, `first`, `growth`,"
        " `planes`, `terms`",
        "stream": "the extension under which sinks were taken away",
        "streams": "losses by position: sinks `kept`, `replaced` by other tokens, `removed`",
        "marks": MARKS,
        "made": MADE,
        "findings": "sentences",
    },
    "eval": {
        "folder": FOLDER,
        "command": COMMAND,
        "line": "the extension as it was typed",
        "extension": EXTENSION,
        "longest": "longest request that was allowed, in tokens",
        "lengths": "of generated texts",
        "limit": "samples of each task and length; null: all",
        "scores": "`task`, `metric`, `value`, `error`, `samples`",
        "tasks": "with their settings and longest requests",
        "marks": MARKS,
        "made": MADE,
    },
    "fit": {
        "folder": FOLDER + "; `extension.json` too",
        "load": "how to load the model that --save wrote; empty without --save",
        "command": COMMAND,
        "words": "the result in sentences",
        "made": MADE,
        "marks": MARKS,
        "goal": "the conditions",
        "trained_len": "of the model",
        "extension": "the one written, as `rw.Extension.from_json` reads it",
        "written": "the same as a line",
        "breaks": "which conditions it breaks on the test texts; empty: none",
        "judged": "the final test, the search's choice first: `line`, `extension`, `loss`, `behind`, `damage`,"
        " `slowdown`, `passkeys`, `breaks`, `by_length`",
        "elsewhere": "the same on text of another kind: `corpus`, `judged`; null where there is too little",
        "trials": "every trial with its losses",
    },
    "show": {
        "presets": "`name`, `idea`, `source`",
        "methods": "the same with `slot`, `formula` and `notes`",
    },
    "show --cite": {
        "line": "the extension as it was typed",
        "bibtex": "what to cite for it",
    },
    "show EXTENSION": {
        "line": "the extension as it was typed",
        "extension": "as `rw.Extension.from_json` reads it",
        "trained_len": "trained length for which it is shown",
        "length": "for which it is shown",
        "description": "formula, sources and notes as text",
        "methods": "`slot`, `name`, `idea`, `formula`, `source`, `notes`, `parameters` with their values",
        "pairs": "`pair`, `wavelength`, `turns_trained`, `turns`, `slowed_by` (null: not rotated)",
        "distances": "`reach`, `distance`, `effective` (null: out of reach), where a reach changes distances",
    },
    "inspect": {
        "trained_len": "in tokens",
        "target_len": "in tokens",
        "layers": "their number",
        "heads": "query heads of a layer",
        "kv_heads": "key heads of a layer",
        "head_dim": "dimensions of a head",
        "rotary_dim": "dimensions that are rotated",
        "base": "of the rotary frequencies",
        "own_schedule": "of the checkpoint; empty for plain RoPE",
        "windows": "of each layer; null: none",
        "chunks": "within which each layer attends; null: none",
        "turns_trained": "rotations of each pair within the trained length",
        "turns_at_target": "the same within the target length",
        "under_trained": "pairs that never complete a turn in training",
        "cache_bytes": "of one text of the target length",
        "tabled": "empty, or why a static schedule cannot go into the rotary tables",
        "carried": "empty, or why the attention cannot be replaced",
        "methods": "every preset: `name`, `needs`, `by`, `cache_bytes`, `why_not`, `applies`, `idle` (unused slots)",
    },
    "extend": {
        "folder": "where the model is",
        "extension": EXTENSION,
        "load": "the function that loads it",
        "why": "why plain transformers cannot load it; empty where it can",
    },
    "export": {
        "kind": "`native`, `lowered`, `plugin` or `frozen`: how the engine gets the extension",
        "folder": "where the model is; null where settings are all",
        "command": "what starts the engine; of a trainer, its settings",
        "notes": "sentences",
    },
    "check": {
        "model": "as it was named",
        "engine": "its name",
        "version": "of the engine",
        "source": "what was read or run to know it",
        "verdict": "`same`, `differs`, `refused` or `unknown`",
        "target_len": "in tokens",
        "trained_len": "in tokens",
        "trained_source": "who says so, where the config does not; else empty",
        "made_for_len": "tokens that it is for with its schedule",
        "stretched_by": "the methods of a schedule that was added after training; empty: none",
        "allowed_len": "the longest that the engine allows; null: any",
        "default_len": "tokens that the engine serves without flags",
        "layers": "every pair of every type of layer, in the engine and as meant",
        "ignored": "keys of the config that the engine does not read",
        "findings": "with their kinds",
        "flags": "flags that make the engine serve this length",
    },
    "check --running": {
        "url": "where the engine runs",
        "served": "what it calls the model",
        "model": "as it was named",
        "verdict": "`in force`, `not applied` or `cannot tell`",
        "target_len": "tokens of the text",
        "trained_len": "in tokens",
        "parts": "`within` the trained length and `beyond` it: mean differences of log-probabilities `to_schedule`,"
        " `to_plain` and between these (`apart`), the `places` compared, a `verdict`",
        "reason": "why there are no parts; empty where there are",
    },
    "generate": {
        "text": "the generated text",
        "tokens": "its ids",
        "prompt_tokens": "tokens before the first generated one; of the longest context, with its question",
        "extension": "that was asked for, as `rw.Extension.from_json` reads it; null without one",
    },
    "stream": {
        "folder": "where `stream.json`, the table and the figure are; null without --out",
        "command": COMMAND,
        "extension": EXTENSION,
        "line": "the extension as it was typed",
        "corpus": "as it was named",
        "dtype": "of the model",
        "threads": "of torch",
        "trained_len": "of the model",
        "tokens": "of the text",
        "piece": "tokens read at once",
        "documents": "that the text consists of",
        "rounds": "how often the documents were read; above 1 where the corpus is too short",
        "loss": "nats per token",
        "accuracy": "of the next token",
        "bits_per_byte": "of the text",
        "seconds": "of reading",
        "processor_seconds": "of all threads",
        "cache_bytes": "at most",
        "process_bytes": "at most; 0: unknown",
        "model": "as it was named",
        "when": "in UTC",
        "machine": "its processor",
        "python": "its version",
        "versions": "of the packages",
        "sources": "a hash of Ropewalk's own",
        "stretches": "parts of the text: `stop`, `loss`, `accuracy`, `milliseconds`, `cache_bytes`",
    },
    "train": {
        "recipe": "its name",
        "folder": "of the run",
        "model": "the result",
    },
    "train --list": {
        "recipes": "`name`, `idea`, `settings` with `name`, `default`, `rule`, `meaning`",
    },
}


def print_json(record: Mapping[str, Any]) -> None:
    """The only thing on the output stream; in ASCII where that has no other letters."""
    plain = "utf" not in (getattr(sys.stdout, "encoding", None) or "utf-8").lower()
    typer.echo(json.dumps(record_json(record), indent=2, ensure_ascii=plain))


@contextmanager
def only_json(as_json: bool) -> Iterator[None]:
    """For a block in which libraries print: with --json that goes to the error stream."""
    if not as_json:
        yield
        return
    with redirect_stdout(sys.stderr):
        yield


def command() -> str:
    """The command line as it was typed."""
    return shlex.join(["ropewalk", *sys.argv[1:]])


def print_result(result: MeasuredResult, out: str, *, as_json: bool, **more: Any) -> None:
    """Print a result whose report is in a folder: as tables and sentences, or as JSON with `more` in it."""
    if as_json:
        print_json({"folder": out, **more, **result.to_dict(), "command": command()})
    else:
        console = Console(markup=False, highlight=False)
        for part in result.for_terminal():
            console.print(part)


def open_page(page: Path, *, wanted: bool) -> None:
    """Open a page if that is wanted; where there is no browser, say so and go on."""
    if wanted and not webbrowser.open_new_tab(page.resolve().as_uri()):
        print(f"No browser could be opened here; the page is {page}", file=sys.stderr)
