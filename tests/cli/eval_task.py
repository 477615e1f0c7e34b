"""A task for `ropewalk eval` that needs no network."""

import json
from pathlib import Path

TASK = """
dataset_path: json
dataset_kwargs: {{data_files: {{test: {place}/own.jsonl}}, cache_dir: {place}/cache}}
test_split: test
task: own
output_type: generate_until
doc_to_text: "{{{{question}}}}"
doc_to_target: "x"
generation_kwargs: {{until: [], max_gen_toks: 8, do_sample: false}}
metric_list: [{{metric: exact_match}}]
"""


def write_task(place: Path, questions: list[str]) -> None:
    """The task `own` and its questions, in a folder for --include-path."""
    (place / "own.jsonl").write_text("".join(json.dumps({"question": one}) + "\n" for one in questions))
    (place / "own.yaml").write_text(TASK.format(place=place))
