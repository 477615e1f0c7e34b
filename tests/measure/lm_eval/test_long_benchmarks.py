"""Long benchmarks of the harness, by its own definitions, on small data that lies in folders named as on the hub."""

import json
import re
from pathlib import Path

import pytest
import torch

import ropewalk as rw
from ropewalk.errors import DoesNotFit, InvalidValue
from ropewalk.measure.lm_eval.harness import LENGTHS, babilong_length, evaluate, with_its_columns

from measure.subjects import model
from train.texts import text, tokenizer

pytestmark = pytest.mark.nightly

YARN = rw.parse("yarn:factor=4")
FOLDERS = ("babilong", "graphwalks", "infinitebench", "longbench2")


@pytest.fixture
def harness(tmp_path, monkeypatch):
    """The harness's folders of these benchmarks; `datasets` reads a folder before the hub, and keeps nothing."""
    lm_eval = pytest.importorskip("lm_eval", reason="the extra eval is not installed")
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.chdir(tmp_path)
    return {"include": [str(Path(lm_eval.__file__).parent / "tasks" / folder) for folder in FOLDERS]}


@pytest.fixture
def answering(monkeypatch):
    """The model writes what a function of the prompt says; the harness asks and scores."""

    def answer(reader):
        prompts = []

        def written(self, requests, disable_tqdm=False):
            prompts.extend(request.args[0] for request in requests)
            return [reader(request.args[0]) for request in requests]

        monkeypatch.setattr("lm_eval.models.huggingface.HFLM.generate_until", written)
        return prompts

    return answer


def put(repository, configs):
    """A data set: for each config, its splits with their rows."""
    place, lines = Path(repository), ["---", "configs:"]
    for config, splits in configs.items():
        lines += [f"- config_name: {config}", "  data_files:"]
        for split, rows in splits.items():
            file = place / config / f"{split}.jsonl"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("".join(json.dumps(row) + "\n" for row in rows))
            lines += [f"  - split: {split}", f"    path: {config}/{split}.jsonl"]
    (place / "README.md").write_text("\n".join([*lines, "---", ""]))


def scores(result):
    return {(score.task, score.metric): score.value for score in result.scores}


def run(names, harness, longest=4096, **more):
    return evaluate(model(), tokenizer(), YARN, names, longest=longest, **harness, **more)


# BABILong


def place_of(prompt):
    """Where the person of the question went last, from the facts of the last question alone."""
    facts = prompt[prompt.rindex("The most recent location of Alan is shop.") :]
    person = re.findall(r"Where is (\w+)\?", facts)[-1]
    *_, place = re.findall(rf"{person} went to the (\w+)", facts)
    return f"The most recent location of {person} is {place}."


def facts(name, *places):
    moves = " ".join(f"{name} went to the {place}. The rope is long." for place in places)
    return {"input": moves, "question": f"Where is {name}? ", "target": places[-1]}


@pytest.fixture
def babilong(harness):
    rows = {"0k": "Mary", "1k": "John", "2k": "Ada", "4k": "Eve"}
    put(
        "RMT-team/babilong-1k-samples",
        {
            config: {
                "qa1": [facts(name, "hall", "garden"), facts(name, "garden", "attic")],
                "qa2": [facts(name, "hall")],
            }
            for config, name in rows.items()
        },
    )
    return harness


def test_babilong_reads_one_length(babilong, answering):
    prompts = answering(place_of)
    for lengths, name, config in (((), "Ada", "2k"), ((0,), "Mary", "0k"), ((1024,), "John", "1k")):
        prompts.clear()
        found = run(["babilong_qa1"], babilong, lengths=lengths)
        assert scores(found) == {("babilong_qa1", "acc"): 1.0}
        assert found.tasks["babilong_qa1"]["data"] == config
        assert [f"Where is {name}?" in prompt for prompt in prompts] == [True, True]
        assert all(prompt.count("The most recent location of") == 3 for prompt in prompts)  # the rule, and two examples
    answering(lambda prompt: "It is the hall.")
    assert scores(run(["babilong_qa1"], babilong)) == {("babilong_qa1", "acc"): 0.0}
    answering(lambda prompt: "the GARDEN")
    assert scores(run(["babilong_qa1"], babilong)) == {("babilong_qa1", "acc"): 0.5}


def test_what_babilong_refuses(babilong):
    with pytest.raises(
        DoesNotFit, match="BABILong reads one length at a time, and --lengths has 2; run it once for each"
    ):
        run(["babilong_qa1"], babilong, lengths=(1024, 2048))
    with pytest.raises(
        InvalidValue, match=r"--lengths must be a length of BABILong's, got 3000; known: 0k, 1k, .*128k"
    ):
        run(["babilong_qa1"], babilong, lengths=(3000,))


@pytest.mark.parametrize(
    ("longest", "name"), [(512, "0k"), (1024, "0k"), (1025, "1k"), (4096, "2k"), (131_072, "64k"), (10**6, "128k")]
)
def test_by_default_babilong_is_of_the_longest_length_with_room_for_a_question(longest, name):
    assert babilong_length([], longest) == name


def test_lengths_of_babilong_are_in_kilos():
    assert [babilong_length([length], 0) for length in LENGTHS] == list(LENGTHS.values())
    assert LENGTHS[4096] == "4k"


# GraphWalks


GRAPH = "The graph has the following edges:\nuvwx -> alke\nabcd -> uvwx\nabcd -> efgh\nefgh -> uvwx\n"


@pytest.fixture
def graphwalks(harness):
    parquet, arrow = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    questions = {"BFS from node abcd with depth 1": ["uvwx", "efgh"], "parents of node uvwx": ["abcd", "efgh"]}
    rows = [
        {
            "prompt": GRAPH * times + asked,
            "answer_nodes": nodes,
            "prompt_chars": 0,
            "problem_type": "bfs",
            "date_added": "",
        }
        for times, (asked, nodes) in zip((1, 4), questions.items(), strict=True)
    ]
    Path("openai/graphwalks").mkdir(parents=True)
    for file in ("graphwalks_128k_and_shorter", "graphwalks_256k_to_1mil"):
        parquet.write_table(arrow.Table.from_pylist(rows), f"openai/graphwalks/{file}.parquet")
    return harness


def test_graphwalks_by_hand(graphwalks, answering):
    """Both sets are named as [uvwx, efgh]: right for the first, and one of two for the second, F1 1/2."""
    answering(lambda prompt: "I walk.\nFinal Answer: [uvwx, efgh]")
    found = run(["graphwalks_128k"], graphwalks, answer=32)
    assert scores(found) == {("graphwalks_128k", "f1"): 0.75, ("graphwalks_128k", "flexible_f1"): 0.75}
    answering(lambda prompt: "Final Answer: [uvwx, efgh]\nThat is all.")  # not the last line
    found = run(["graphwalks"], graphwalks, answer=32)
    assert scores(found)["graphwalks_128k", "f1"] == scores(found)["graphwalks", "f1"] == 0
    assert scores(found)["graphwalks_1M", "flexible_f1"] == scores(found)["graphwalks", "flexible_f1"] == 0.75


def test_answers_can_be_shorter_than_a_task_says_and_never_longer(graphwalks, answering):
    answering(lambda prompt: "")
    sizes = sorted(len(tokenizer()(GRAPH * times)["input_ids"]) for times in (1, 4))
    with pytest.raises(
        DoesNotFit, match=r"--to must be at least 16,\d+, for the longest request of graphwalks_128k .*--ans"
    ):
        run(["graphwalks_128k"], graphwalks)
    found = run(["graphwalks_128k"], graphwalks, answer=32)
    request = found.tasks["graphwalks_128k"]["longest_request"]
    assert sizes[1] + 32 < request < sizes[1] + 32 + 40
    longer = run(["graphwalks_128k"], graphwalks, longest=10**6, answer=10**5)
    assert longer.tasks["graphwalks_128k"]["longest_request"] == request - 32 + 16384


def test_samples_that_do_not_fit_are_left_out_and_counted(graphwalks, answering):
    prompts = answering(lambda prompt: "Final Answer: [uvwx, efgh]")
    room = len(tokenizer()(GRAPH)["input_ids"]) + 80
    found = run(["graphwalks_128k"], graphwalks, longest=room, answer=16, fitting=True)
    assert scores(found)["graphwalks_128k", "f1"] == 1.0
    assert found.tasks["graphwalks_128k"]["left_out"] == 1
    assert len(prompts) == found.scores[0].samples == 1
    everything = run(["graphwalks_128k"], graphwalks, answer=16, fitting=True, limit=1)
    assert (everything.tasks["graphwalks_128k"]["left_out"], everything.scores[0].samples) == (0, 1)
    words = r"--to must be at least \d+, for the shortest sample of graphwalks_128k with its answer, got 60"
    with pytest.raises(DoesNotFit, match=words):
        run(["graphwalks_128k"], graphwalks, longest=60, answer=16, fitting=True)


# LongBench v2

CONFIGS = re.compile(r"dataset_name: (\w+)")


def configs_of(harness):
    files = Path(harness["include"][FOLDERS.index("longbench2")]).glob("*.yaml")
    return sorted({name for file in files for name in CONFIGS.findall(file.read_text())})


def chosen_letter(row):
    """The letter with the largest log-probability after the prompt, as the model's own logits have it."""
    letters = "".join(f"({letter}) {choice}\n" for letter, choice in zip("ABCD", row["choices"], strict=True))
    prompt = (
        "Please read the following text and answer the question below.\n\n<text>\n"
        f"{row['context']}\n</text>\n\nWhat is the correct answer to this question: {row['question'].strip()}\n"
        f"Choices:\n{letters}\nAnswer:"
    )
    begin, sums = len(tokenizer()(prompt)["input_ids"]), {}
    for letter in "ABCD":
        ids = torch.tensor([tokenizer()(f"{prompt} {letter}")["input_ids"]])
        with rw.extended(model(), YARN), torch.no_grad():
            steps = model()(input_ids=ids).logits[0].double().log_softmax(-1)
        sums[letter] = float(steps[begin - 1 : -1].gather(1, ids[0, begin:, None]).sum())
    return max(sums, key=sums.get)


def test_longbench2_chooses_by_the_model_s_logits(harness):
    rows = [
        {
            "_id": str(n),
            "context": text(n, 40),
            "question": f"{text(n + 50, 5)} ",
            "choices": list("abcd"),
            "answer": "A",
        }
        for n in range(4)
    ]
    expected = [chosen_letter(row) for row in rows]
    for row, letter in zip(rows[:3], expected, strict=False):
        row["answer"] = letter
    rows[3]["answer"] = "ABCD"[("ABCD".index(expected[3]) + 1) % 4]
    put("recursal/longbench-v2", {"table_qa": {"train": rows}, "graph_reasoning": {"train": rows[2:]}})
    found = scores(run(["longbench2_structured"], harness))
    assert found["longbench2_table", "acc"] == 0.75
    assert found["longbench2_graph", "acc"] == 0.5
    assert found["longbench2_structured", "acc"] == pytest.approx((3 + 1) / 6)  # by samples


def test_all_of_longbench2_is_read(harness):
    row = {"_id": "0", "context": text(0, 10), "question": "long? ", "choices": list("abcd"), "answer": "B"}
    put("recursal/longbench-v2", {config: {"train": [row]} for config in configs_of(harness)})
    found = run(["longbench2"], harness)
    assert len(found.tasks) == len(configs_of(harness)) > 15
    assert {score.value for score in found.scores} <= {0.0, 1.0}
    assert ("longbench2", "acc") in scores(found)


# InfiniteBench

BOOK = {"context": "It is a long book about Ada.", "input": "Who is it about?", "answer": ["Ada"], "options": []}
FOUR = {"options": ["one", "two", "three", "Ada"]}
SPLITS = {  # the names on the hub, and rows as they are there; what is written to be right
    "passkey": ({**BOOK, "answer": ["71432"]}, "71432."),
    "kv_retrieval": ({**BOOK, "answer": ["6f1c-2d"]}, '"6f1c-2d"'),
    "number_string": ({**BOOK, "answer": ["2022"]}, "It is 2022"),
    "code_run": ({**BOOK, "input": "Please give me func_1(3)", "answer": [-7]}, "It returns -7"),
    "code_debug": ({**BOOK, **FOUR}, "D"),
    "math_find": ({**BOOK, "input": "The largest number of the list", "answer": [96]}, "96"),
    "longdialogue_qa_eng": ({**BOOK, "answer": ["ADA"]}, "It is Ada"),
    "longbook_qa_eng": (BOOK, "the Ada"),
    "longbook_sum_eng": ({**BOOK, "answer": ["Ada walks far."]}, "Ada walks far."),
    "longbook_choice_eng": ({**BOOK, **FOUR}, "D"),
    "longbook_qa_chn": ({**BOOK, "answer": ["绳子"]}, "绳子。"),
    "math_calc": ({**BOOK, "answer": [1, 2]}, ""),
}


def test_every_task_of_infinitebench_reads_its_split(harness, answering):
    marked = {split: {**row, "context": f"{row['context']} {split}."} for split, (row, _) in SPLITS.items()}
    put("xinrongzhang2022/InfiniteBench", {"default": {split: [{"id": 0, **row}] for split, row in marked.items()}})

    def reader(prompt):
        return next(said for split, (_, said) in SPLITS.items() if f" {split}." in prompt)

    prompts = answering(reader)
    found = run(["infinitebench"], harness)
    assert len(prompts) == len(found.tasks) == 11
    assert {score.value for score in found.scores} == {1.0}
    answering(lambda prompt: "nothing")
    assert {score.value for score in run(["infinitebench"], harness).scores} == {0.0}


def test_a_definition_that_is_right_stays_as_it_is():
    datasets = pytest.importorskip("datasets")
    columns = datasets.Features({"id": datasets.Value("int64")})
    definition = {"test_split": "longbook_qa_eng", "dataset_kwargs": {"features": columns, "revision": "main"}}
    assert with_its_columns(definition) == definition
    assert with_its_columns({"test_split": "passkey"}) == {"test_split": "passkey"}


def test_answers_are_shortened_only_where_something_is_written(harness):
    row = {"_id": "0", "context": text(0, 10), "question": "long? ", "choices": list("abcd"), "answer": "B"}
    put("recursal/longbench-v2", {"table_qa": {"train": [row]}})
    with pytest.raises(InvalidValue, match="none of the tasks lets the model write; leave out --answer"):
        run(["longbench2_table"], harness, answer=8)
