"""Corrections to how lm-evaluation-harness defines tasks (lm-eval 0.4.13), made in the index of one run.

- InfiniteBench: its columns are a mapping where `datasets` wants its own type, so that no task loads; and four tasks
  ask for splits named `_en` that the data calls `_eng` (EleutherAI/lm-evaluation-harness, issue 3895).
- BABILong: its loader takes the name of one length, such as 4k, and breaks on the list that RULER's takes.

The files and modules of the harness stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ropewalk.errors import DoesNotFit, InvalidValue
from ropewalk.methods.spec import Json

BABILONG, INFINITEBENCH = "babilong_qa", "infinitebench_"
KILO = 1024
LENGTHS = {kilos * KILO: f"{kilos}k" for kilos in (0, 1, 2, 4, 8, 16, 32, 64, 128)}  # of BABILong


def correct_definitions(index: dict[str, Any], lengths: Sequence[int], longest: int) -> None:
    """Put corrected entries into an index of tasks."""
    from lm_eval.tasks._yaml_loader import load_yaml

    def babilong(definition: Json) -> Json:
        loaded = definition.get("custom_dataset")
        return definition | {"custom_dataset": _load_one_length(loaded, lengths, longest)} if loaded else definition

    corrections = {BABILONG: babilong, INFINITEBENCH: with_its_columns}
    for name, entry in list(index.items()):
        for begin, correct in corrections.items():
            if name.startswith(begin) and entry.yaml_path is not None:
                definition = correct(load_yaml(entry.yaml_path, resolve_func=True))
                index[name] = replace(entry, yaml_path=None, cfg=definition)


def with_its_columns(definition: Json) -> Json:
    """A definition whose columns are of the type that `datasets` wants, and whose split exists.

    with_its_columns({"test_split": "longbook_qa_en"})    # {"test_split": "longbook_qa_eng"}
    """
    options, split = dict(definition.get("dataset_kwargs") or {}), str(definition.get("test_split", ""))
    if isinstance(options.get("features"), dict):
        options["features"] = _columns(options["features"])
    corrected = {"dataset_kwargs": options} if options else {}
    return definition | corrected | ({"test_split": f"{split}g"} if split.endswith("_en") else {})


def _columns(mapping: dict[str, Any]) -> Any:
    from datasets import Features, Sequence, Value

    if isinstance(mapping, Features):
        return mapping
    columns = {name: Value(column["dtype"]) for name, column in mapping.items()}
    return Features(
        {name: Sequence(columns[name]) if mapping[name].get("sequence") else columns[name] for name in mapping}
    )


def _load_one_length(loaded: Callable[..., Any], lengths: Sequence[int], longest: int) -> Callable[..., Any]:
    """BABILong's loader, with the name of the length."""

    def load(**options: Any) -> Any:
        return loaded(**options | {"max_seq_lengths": babilong_length(lengths, longest)})

    return load


def babilong_length(lengths: Sequence[int], longest: int) -> str:
    """The name of the length that is asked for; by default the longest below the longest request.

    babilong_length([4096], 8192)    # "4k"
    babilong_length([], 8192)        # "4k": texts of 8k and a question are longer than 8,192 tokens
    """
    if len(lengths) > 1:
        sentence = f"BABILong reads one length at a time, and --lengths has {len(lengths)}"
        raise DoesNotFit.because("--lengths", sentence, remedy="run it once for each length")
    if not lengths:
        return [name for length, name in LENGTHS.items() if length < longest][-1]
    if lengths[0] not in LENGTHS:
        raise InvalidValue("--lengths", "a length of BABILong's", lengths[0], known=LENGTHS.values())
    return LENGTHS[lengths[0]]
