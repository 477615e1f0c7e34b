"""Needles and streams: who reads is right in every cell, who does not is wrong, and what cannot be asked is refused."""

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from ropewalk.errors import DoesNotFit, InvalidValue
from ropewalk.hf.use.long_text import TokenScores
from ropewalk.measure.material.subject import Subject
from ropewalk.measure.tasks import LabelMap, Needle, Passkey, Ruler, Shots, StreamEval

from measure import oracles
from measure.subjects import model
from measure.tasks.lossy import lossy
from train.texts import text, tokenizer


@pytest.mark.nightly
def test_in_every_cell_the_reader_finds_it_and_a_random_model_does_not(who, monkeypatch):
    task = Needle(samples=6, depths=3)
    cells = [(length, sample) for length in (300, 450) for sample in range(6)]
    assert [task.depth(sample) for sample in range(6)] == [0.0, 0.5, 1.0] * 2
    assert not any(task.measure(who, *cell)["right"] for cell in cells)
    oracles.put(monkeypatch, who, oracles.advice)
    found = [task.measure(who, *cell) for cell in cells]
    assert all(each["right"] and each["words"] == 1 and each["loss"] == 0 for each in found)


def test_a_needle_stands_where_its_depth_says(who):
    task = Needle(depths=3)
    for sample, place in ((0, 0.0), (1, 0.5), (2, 1.0)):
        prompt = task.prompt(who, 1000, sample)
        needle = prompt.text.index("The best thing")
        before, after = needle, prompt.text.rindex("What is the best") - prompt.text.index("\n", needle) - 1
        assert before / (before + after) == pytest.approx(place, abs=0.15)
        assert len(prompt.ids) + max(48, len(prompt.answer_ids)) == 1000
        assert prompt.text.count(prompt.answer.strip()) == 1


def test_a_stream_is_condensed_by_its_questions():
    """Two streams of two and of four questions: all six, the three in later halves, and losses."""
    streams = [
        {"right": [False, True], "loss": 0.1, "places": [5, 9]},
        {"right": [False, False, True, False], "loss": 3.9, "places": [5, 9, 13, 17]},
    ]
    found = StreamEval().condense(streams)
    assert (found["right"].value, found["right"].of) == (2 / 6, 6)
    assert (found["late"].value, found["late"].of) == (2 / 3, 3)
    assert found["loss"].value == pytest.approx(2.0)
    assert found["loss"].low == 0  # a loss is never below


def test_more_samples_are_more_cells_and_not_other_ones():
    assert Needle(samples=4).identity(1) == Needle(samples=9).identity(1)
    assert Passkey(samples=4).identity(1) != Passkey(samples=9).identity(1)  # at another depth


def test_the_words_of_half_an_answer_are_half(who, monkeypatch):
    oracles.put(monkeypatch, who, lambda said: " ".join(oracles.advice(said).split()[:3]))
    found = Needle().measure(who, 300, 0)
    assert not found["right"]
    assert 0.5 <= found["words"] < 1  # "bring the one" of "bring the one to the other"


def read_stream(who, task, length, sample):
    """The stream's text, and the text of each answer with what stands before it."""
    stream = task.prompt(who, length, sample)
    decode = who.tokenizer.decode
    return stream, [(decode(list(stream.ids[: each.start])), decode(list(stream.ids[each]))) for each in stream.answers]


def test_a_stream_asks_for_a_fact_some_lines_back(who):
    stream, asked = read_stream(who, StreamEval(every=3, back=4), 1000, 0)
    assert len(stream.ids) == 1000
    assert len(asked) > 2
    for before, answer in asked:
        facts = [line for line in before.splitlines() if line.startswith("The content of")]
        name = before[before.rindex("register ") :].split()[1]
        assert facts[-4] == f"The content of register {name} is{answer}."
        assert before.endswith("is")


def test_a_question_counts_where_all_its_tokens_are_chosen(who, monkeypatch):
    task = StreamEval(every=2, back=2)
    stream = task.prompt(who, 700, 0)
    count = len(stream.answers)
    assert count >= 4
    missed = stream.answers[1].stop - 2  # the score of the last token of the second answer

    def told(model, ids, **_):
        hits = torch.ones(1, ids.shape[1] - 1, dtype=torch.bool)
        hits[0, missed] = False
        hits[0, missed + 1] = False  # the line's end, which nobody asks for
        return TokenScores(torch.zeros(hits.shape), hits)

    monkeypatch.setattr("ropewalk.measure.tasks.answers.score_tokens", told)
    found = task.measure(who, 700, 0)
    assert found["right"] == [n != 1 for n in range(count)]
    numbers = task.condense([found, found])
    assert numbers["right"].value == (count - 1) / count
    assert numbers["late"].value == 1.0


def test_the_loss_of_a_stream_is_of_its_answers_and_a_random_model_finds_none(who):
    task = StreamEval(every=2, back=2)
    stream, found = task.prompt(who, 300, 0), task.measure(who, 300, 0)
    ids = torch.tensor([stream.ids])
    with torch.no_grad():
        logits = who.model(input_ids=ids).logits[0]
    losses = torch.nn.functional.cross_entropy(logits[:-1], ids[0, 1:], reduction="none")
    each = [float(losses[span.start - 1 : span.stop - 1].mean()) for span in stream.answers]
    assert found["loss"] == pytest.approx(sum(each) / len(each), abs=1e-4)
    assert not any(found["right"])
    assert found["places"] == [span.start for span in stream.answers]


def with_marks():
    """A tokenizer that puts a mark for a space before every text, as those of sentencepiece do."""
    made = Tokenizer(models.BPE(unk_token="<unk>"))
    lines, spaces = pre_tokenizers.Split("\n", "isolated"), pre_tokenizers.Metaspace(prepend_scheme="first")
    made.pre_tokenizer = pre_tokenizers.Sequence([lines, spaces])
    made.decoder = decoders.Metaspace(prepend_scheme="first")
    letters = [chr(n) for n in range(32, 127)] + ["\n", "▁"]
    trainer = trainers.BpeTrainer(
        vocab_size=290, special_tokens=["<unk>"], initial_alphabet=letters, show_progress=False
    )
    made.train_from_iterator([text(n) for n in range(20)], trainer)
    return PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>")


TASKS = [
    *(Needle(), Passkey(), StreamEval(every=2, back=2), Ruler(kind="niah_multivalue"), Ruler(kind="vt")),
    *(LabelMap(), Shots()),
]


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.title)
def test_a_tokenizer_that_gives_no_text_back_is_refused(who, task):
    other = Subject(model=model(), tokenizer=lossy(), corpus=who.corpus, longest=120)
    with pytest.raises(DoesNotFit, match=r"tokenizer must be one that decodes to the same text, got '\w+ for \w+"):
        task.require(other, [1200])


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.title)
def test_a_tokenizer_that_marks_the_beginning_serves(who, task):
    other = Subject(model=model(), tokenizer=with_marks(), corpus=who.corpus, longest=60)
    prompt = task.prompt(other, 1200, 0)
    assert len(prompt.ids) <= 1200
    if isinstance(task, Passkey):
        whole = other.tokenizer(prompt.text + prompt.answer, add_special_tokens=False)["input_ids"]
        assert tuple(whole) == prompt.ids + prompt.answer_ids
        assert prompt.length == 1200


def test_what_is_refused(who, tmp_path):
    with pytest.raises(InvalidValue, match="depths must be above 1"):
        Needle(depths=1)
    with pytest.raises(DoesNotFit, match=r"length must be at least \d+, the end of the first answer"):
        StreamEval().require(who, [200])
    with pytest.raises(DoesNotFit, match=r"length must be at least \d+"):
        Needle().require(who, [100, 1000])
    short = Subject(model=model(), tokenizer=tokenizer(), corpus=who.corpus, longest=100_000)
    with pytest.raises(DoesNotFit, match="held-out documents of 100000 tokens"):
        Needle().require(short, [1000])
