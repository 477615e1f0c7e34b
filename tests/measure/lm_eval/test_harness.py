"""lm-evaluation-harness on an extended model: its numbers, what is refused, and its fixes."""

import json
import math
import re
import shutil
import sys
from copy import deepcopy
from types import SimpleNamespace

import pytest
import torch

import ropewalk as rw
from ropewalk.errors import DoesNotFit, InvalidValue, NotInstalled, UnknownName, Unreadable
from ropewalk.measure.lm_eval import fixes, harness
from ropewalk.measure.lm_eval.fixes import any_of, choose, means, present
from ropewalk.measure.lm_eval.harness import MetricScore, evaluate

from measure.subjects import model
from train.texts import text, tokenizer

YARN = rw.parse("yarn:factor=4")
COMMON = """
dataset_path: json
dataset_kwargs: {{data_files: {{test: {place}/{name}.jsonl}}, cache_dir: {place}/cache}}
test_split: test
task: {name}
"""
KINDS = {
    "choice": """
output_type: multiple_choice
doc_to_text: "{{question}}"
doc_to_choice: "{{choices}}"
doc_to_target: "{{answer}}"
metric_list: [{metric: acc}]
""",
    "rolling": """
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{text}}"
metric_list: [{metric: byte_perplexity}]
""",
    "writing": """
output_type: generate_until
doc_to_text: "{{question}}"
doc_to_target: "{{answer}}"
generation_kwargs: {until: ["\\n\\n"], max_gen_toks: 8, do_sample: false}
metric_list: [{metric: exact_match}]
""",
    "lengths": """
output_type: generate_until
doc_to_text: "{{question}}"
doc_to_target: "{{outputs}}"
generation_kwargs: {until: [], max_gen_toks: 24, do_sample: false}
process_results: !function scored.process_results
metric_list: [{metric: "4096", aggregation: !function scored.aggregate_metrics}]
""",
    "answers": """
output_type: generate_until
doc_to_text: "{{question}}"
doc_to_target: "{{outputs}}"
generation_kwargs: {until: [], max_gen_toks: 24, do_sample: false}
process_results: !function scored.process_results_part
metric_list: [{metric: "4096", aggregation: !function scored.aggregate_metrics}]
""",
}
SCORED = "from lm_eval.tasks.ruler.common_utils import aggregate_metrics, process_results, process_results_part\n"
GROUP = "group: both\ntask: [lengths, answers]\naggregate_metric_list: [{metric: '4096', weight_by_size: false}]\n"
QUESTIONS = [text(n, words=20).strip() for n in range(4)]


@pytest.fixture
def tasks(tmp_path, monkeypatch):
    """A folder of tasks; a call writes the data of one. The harness's own tasks are not looked through."""
    found = pytest.importorskip("lm_eval.tasks", reason="the extra eval is not installed")

    class Own(found.TaskManager):
        def __init__(self, **given):
            super().__init__(**given | {"include_defaults": False})

    monkeypatch.setattr(found, "TaskManager", Own)
    (tmp_path / "scored.py").write_text(SCORED)
    (tmp_path / "both.yaml").write_text(GROUP)

    def write(name, rows):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (tmp_path / f"{name}.yaml").write_text(COMMON.format(place=tmp_path, name=name) + KINDS[name])
        return {"include": [str(tmp_path)]}

    return write


def ids(words):
    return torch.tensor([tokenizer()(words)["input_ids"]])


def written(question, count, extension=YARN):
    with rw.extended(model(), extension), torch.no_grad():
        found = model().generate(ids(question), max_new_tokens=count, do_sample=False, pad_token_id=0)
    return tokenizer().decode(found[0, ids(question).shape[1] :], skip_special_tokens=True)


def logs(row):
    with rw.extended(model(), YARN), torch.no_grad():
        return model()(input_ids=row).logits[0].double().log_softmax(-1)


def test_choices_are_those_of_the_extended_model(tasks):
    rows, right = [], []
    for question in QUESTIONS:
        choices = ["rope walk", "far near value"]
        rows.append({"question": question, "choices": choices, "answer": 0})
        sums = []
        for choice in choices:
            whole, begin = ids(f"{question} {choice}"), ids(question).shape[1]
            sums.append(float(logs(whole)[begin - 1 : -1].gather(1, whole[0, begin:, None]).sum()))
        right.append(sums[0] > sums[1])
    found = evaluate(model(), tokenizer(), YARN, ["choice"], longest=128, **tasks("choice", rows))
    (score,) = found.scores
    assert (score.task, score.metric, score.samples) == ("choice", "acc", 4)
    assert score.value == sum(right) / 4
    assert not hasattr(model(), "_ropewalk_handle")
    assert found.tasks["choice"]["longest_request"] == max(ids(f"{q} far near value").shape[1] for q in QUESTIONS) - 1


def test_what_is_written_is_what_the_extended_model_writes(tasks):
    answers = [written(question, 8).split("\n\n")[0] for question in QUESTIONS]
    rows = [{"question": q, "answer": a} for q, a in zip(QUESTIONS, answers, strict=True)]
    rows[0]["answer"] = "something else"
    found = evaluate(model(), tokenizer(), YARN, ["writing"], longest=128, batch=2, **tasks("writing", rows))
    assert found.scores[0].value == 0.75
    assert found.tasks["writing"]["longest_request"] == max(ids(q).shape[1] for q in QUESTIONS) + 8


def test_perplexity_is_that_of_windows_of_the_length(tasks):
    long = text(7, words=100)
    tokens, end = ids(long)[0], tokenizer().bos_token_id or tokenizer().eos_token_id
    nats = 0.0
    for begin in range(0, len(tokens), 64):
        window = tokens[begin : begin + 64]
        before = tokens[begin - 1 : begin] if begin else torch.tensor([end])
        if begin and len(window) < 64:  # the last window reaches back
            whole = tokens[-65:]
            nats -= float(logs(whole[None, :-1])[-len(window) :].gather(1, window[:, None]).sum())
        else:
            nats -= float(logs(torch.cat([before, window])[None, :-1]).gather(1, window[:, None]).sum())
    found = evaluate(model(), tokenizer(), YARN, ["rolling"], longest=64, **tasks("rolling", [{"text": long}]))
    assert found.scores[0].value == pytest.approx(math.exp(nats / len(long.encode())), rel=1e-4)


@pytest.mark.parametrize(("kind", "answer"), [("writing", 8), ("choice", -1)])
def test_what_does_not_fit_is_refused_and_what_just_fits_is_not(tasks, kind, answer):
    rows = [{"question": q, "answer": 0 if kind == "choice" else "x", "choices": ["rope", "far"]} for q in QUESTIONS]
    given = tasks(kind, rows)
    words = [f"{q} {each}" for q in QUESTIONS for each in ("rope", "far")] if kind == "choice" else QUESTIONS
    size = max(ids(each).shape[1] for each in words) + answer
    found = evaluate(model(), tokenizer(), YARN, [kind], longest=size, **given)
    assert found.tasks[kind]["longest_request"] == size
    with pytest.raises(DoesNotFit, match=rf"--to must be at least {size}, for the longest request of {kind} with"):
        evaluate(model(), tokenizer(), YARN, [kind], longest=size - 1, **given)


def test_prompts_are_hashed_and_versions_named(tasks):
    rows = [{"question": q, "answer": "x"} for q in QUESTIONS]
    first = evaluate(model(), tokenizer(), YARN, ["writing"], longest=128, **tasks("writing", rows)).to_json()
    rows[-1]["question"] += " more"
    second = evaluate(model(), tokenizer(), YARN, ["writing"], longest=128, **tasks("writing", rows)).to_json()
    assert first["tasks"]["writing"]["prompts"] != second["tasks"]["writing"]["prompts"]
    assert first["marks"] == second["marks"]
    assert {"lm-eval", "ropewalk", "transformers"} <= set(first["made"]["versions"])
    assert first["scores"][0].keys() == {"task", "metric", "value", "error", "samples"}
    json.dumps(first)


def test_refusals(tasks, tmp_path):
    given = tasks("writing", [{"question": "a", "answer": "x"}])

    def tried(names, **more):
        return evaluate(model(), tokenizer(), YARN, names, **{"longest": 128, **given, **more})

    with pytest.raises(UnknownName, match=r"lm-evaluation-harness has no task 'writting'; did you mean 'writing'"):
        tried(["writting"])
    with pytest.raises(Unreadable, match="--include-path must be a folder"):
        tried(["writing"], include=[str(tmp_path / "none")])
    (tmp_path / "writing.jsonl").unlink()
    with pytest.raises(Unreadable, match="the data of the task writing cannot be loaded: FileNotFoundError"):
        tried(["writing"])
    endless = deepcopy(tokenizer())
    endless.eos_token = None
    with pytest.raises(InvalidValue, match=r"tokenizer.eos_token must be"):
        evaluate(model(), endless, YARN, ["writing"], longest=128)


def test_a_missing_harness_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    monkeypatch.setitem(sys.modules, "lm_eval.models.huggingface", None)
    with pytest.raises(NotInstalled, match=r"in a checkout of Ropewalk, pip install '\.\[eval\]' -c constraints.txt"):
        evaluate(model(), tokenizer(), YARN, ["x"], longest=64)


# Defects


def test_every_length_has_its_samples_and_absent_ones_are_not_numbers(tasks):
    """As RULER: samples of one length after those of another, scores by length, -1 where there is none."""
    said = [written(question, 24) for question in QUESTIONS]
    rows = [
        {"question": q, "outputs": [re.findall("[a-z]+", s)[-1] if n else "nothing"], "max_length": length}
        for length in (64, 96)
        for n, (q, s) in enumerate(zip(QUESTIONS, said, strict=True))
    ]
    tasks("answers", [{**row, "outputs": ["nothing", "never", row["outputs"][0]]} for row in rows])
    given = tasks("lengths", rows)
    found = evaluate(model(), tokenizer(), YARN, ["both"], longest=128, limit=3, **given)
    numbers = {(each.task, each.metric): (each.value, each.samples) for each in found.scores}
    two = pytest.approx(2 / 3)
    assert numbers == {
        **{(task, length): (two, 3) for task in ("lengths", "answers") for length in ("64", "96")},
        **{("both", length): (two, 6) for length in ("64", "96")},
    }


def test_one_right_answer_of_several_is_right():
    doc = {"max_length": 4096, "outputs": ["Paris", "the city of Paris", "PARIS, France"]}
    assert any_of(doc, [" It is paris.\n"]) == {"4096": 1.0}
    assert any_of(doc, ["London"]) == {"4096": 0.0}
    assert any_of({"max_length": 1, "outputs": ["a\nb"]}, ["a\x07b"]) == {"1": 1.0}  # as its authors clean answers


def test_numbers_that_are_none_and_groups():
    assert [present(*each) for each in (("4096", -1.0), ("4096", 0.0), ("score", -1.0), ("x", "N/A"))] == [
        *(False, True, True, False)
    ]
    scores = [
        MetricScore("a", "64", 1.0, None, 2),
        MetricScore("b", "64", 0.0, None, 2),
        MetricScore("b", "128", 0.5, None, 2),
    ]
    assert means([*scores, MetricScore("b", "acc", 9.0, None, 2)]) == {"64": 0.5, "128": 0.5}


def test_a_limit_is_for_each_length():
    assert choose([{"max_length": length} for length in (1, 1, 1, 2, 2, 2)], 2) == [0, 1, 3, 4]
    assert choose([{}, {}, {}], 2) == [0, 1]


def test_a_tokenizer_for_which_ruler_would_never_end(tasks):
    with pytest.raises(DoesNotFit, match=r"RULER's shortest variable tracking's example, and there is room for 500"):
        fixes.require_examples_fit(["ruler_vt"], tokenizer(), [4096])

    def by_words(line, verbose):
        return {"input_ids": line.split()}

    fixes.require_examples_fit(["ruler_vt", "niah_single_1"], by_words, [4096])
    with pytest.raises(DoesNotFit, match="shortest variable tracking, and there is room for 256"):
        fixes.require_examples_fit(["ruler_vt"], by_words, [4096, 256])
    from lm_eval.tasks.ruler.vt_utils import generate_input_output as chains

    example, whole = chains(5, 1, 4, is_icl=True), chains(10, 1, 4)
    least = len(" ".join(map(str, example)).split()) + len(" ".join(map(str, whole)).split()) + 30  # and an answer
    fixes.require_examples_fit(["ruler_vt"], by_words, [least])
    with pytest.raises(
        DoesNotFit,
        match=f"needs {least} tokens for RULER's shortest variable tracking, and there is room for {least - 1}",
    ):
        fixes.require_examples_fit(["ruler_vt"], by_words, [least - 1])
    pytest.importorskip("wonderwords")
    fixes.require_examples_fit(["ruler_cwe"], by_words, [4096])
    with pytest.raises(DoesNotFit, match="shortest common words, and there is room for 300"):
        fixes.require_examples_fit(["ruler_cwe"], by_words, [300])


def test_an_error_for_missing_data_names_the_task_in_the_group():
    holder = SimpleNamespace(config=SimpleNamespace(task="inner"))

    def load(self):
        raise ConnectionError("no network.\nand more")

    try:
        load(holder)
    except ConnectionError as reason:
        said = str(harness._without_data("outer", reason))
    assert "the data of the task inner cannot be loaded: ConnectionError: no network; leave it out" in said
    assert "and more" not in said


@pytest.mark.parametrize("how", ["UNSAFE_CODE", "MULTIMODAL"])
def test_tasks_that_run_what_is_written_or_look_at_pictures_are_refused(how):
    manager = SimpleNamespace(load=lambda names: {"tasks": {"odd": SimpleNamespace(**{how: True})}})
    with pytest.raises(DoesNotFit, match="the task odd has images, or runs code that the model writes; leave it out"):
        harness._load(manager, ["odd"])


def test_a_task_is_also_looked_up_in_the_harness_s_own_index(tasks, tmp_path, monkeypatch):
    """A folder of one's own is read alone while it has all that is asked for; what neither has is refused."""
    found, index = pytest.importorskip("lm_eval.tasks"), tmp_path / "index"

    class Indexed(found.TaskManager):
        def __init__(self, include_path, include_defaults=True, **given):
            super().__init__(include_path=[*include_path, *([str(index)] if include_defaults else [])], **given)

    given = tasks("writing", [{"question": QUESTIONS[0], "answer": "x"}])
    shutil.copytree(tmp_path, index)
    (tmp_path / "writing.yaml").unlink()
    monkeypatch.setattr(found, "TaskManager", Indexed)
    for include in ([], given["include"]):
        assert "writing" in harness._manager(["writing"], include, {}).all_tasks
    with pytest.raises(UnknownName, match="lm-evaluation-harness has no task 'writin'; did you mean 'writing'"):
        harness._manager(["writin"], given["include"], {})
