"""Each task, on models whose answers are known beforehand."""

import math
from copy import deepcopy
from dataclasses import replace
from random import Random

import pytest
import torch
from transformers import DynamicCache

import ropewalk as rw
from ropewalk import extended
from ropewalk.hf.runtime import rounded_cache
from ropewalk.hf.runtime.caches import held_bytes
from ropewalk.hf.use.long_text import score_tokens
from ropewalk.measure.material.subject import Subject, without_extension
from ropewalk.measure.metrics.losses import TokenLosses
from ropewalk.measure.tasks import (
    ALL,
    Context,
    Coreference,
    Damage,
    GraphWalks,
    JsonRecall,
    LabelMap,
    Latent,
    LongPPL,
    ManyContexts,
    Needle,
    Passkey,
    QuantisedCache,
    Repetition,
    Ruler,
    Shots,
    StreamEval,
    context,
    damage,
)

from hf.models import tiny
from measure.subjects import TRAINED, model, subject

LENGTHS = (100, 120)
OTHERS = {  # tasks that need longer texts, or parameters
    Needle: (Needle(samples=3), (220, 250)),
    StreamEval: (StreamEval(samples=3, every=2, back=2), (200, 300)),
    Ruler: (Ruler(kind="vt", samples=3), (900, 1000)),
    Latent: (Latent(samples=3), (400, 500)),
    LongPPL: (LongPPL(samples=3, reference="rerope:window=16", gain=0.01, most=9.0), LENGTHS),
    Coreference: (Coreference(samples=3), (700, 800)),
    GraphWalks: (GraphWalks(samples=3), (1200, 1300)),
    JsonRecall: (JsonRecall(samples=3), (500, 600)),
    LabelMap: (LabelMap(samples=3, labels=4), (250, 300)),
    Shots: (Shots(samples=3), (300, 400)),
    ManyContexts: (ManyContexts(samples=3, piece=100), (200, 300)),
    QuantisedCache: (QuantisedCache(kind="int4", samples=3), LENGTHS),
}
EXAMPLES = [OTHERS.get(task) or (task(samples=3), LENGTHS) for task in ALL]


@pytest.mark.sampled(cases=3)
@pytest.mark.parametrize(("task", "lengths"), EXAMPLES, ids=lambda each: getattr(each, "title", ""))
def test_every_task_measures_and_condenses(tmp_path, task, lengths):
    who = subject(tmp_path, longest=120)
    for length in lengths:
        found = [task.measure(who, length, sample) for sample in range(3)]
        assert found == [task.measure(who, length, sample) for sample in range(3)]
        assert task.headline in task.condense(found)
        for estimate in task.condense(found).values():
            assert estimate.of >= 3
            assert estimate.low <= estimate.value <= estimate.high


def test_context_scores_the_same_tokens_at_every_length(tmp_path):
    who, task = subject(tmp_path), Context(samples=2)
    passage = who.passages(2)[1]
    for length in (32, 64):
        got = task.measure(who, length, 1)
        with torch.no_grad():
            logits = who.model(input_ids=passage[None, -length:]).logits[0]
        losses = torch.nn.functional.cross_entropy(logits[:-1], passage[-length:][1:], reduction="none")
        assert got["loss"] == pytest.approx(float(losses[-TRAINED // 2 :].mean()), abs=1e-5)
        assert got["curve"] == pytest.approx(losses.tolist(), abs=1e-5)


@pytest.mark.parametrize("line", ["", "rerope:window=16+log_n", "streaming:window=20,n_sink=4"])
def test_a_cache_that_rounds_nothing_is_context(tmp_path, line, monkeypatch):
    """The same texts, secrets and scored tokens; and what is rounded changes every one of its numbers."""
    who = subject(tmp_path, longest=256)
    context_, cached = Context(samples=1, questions=4), QuantisedCache(kind="int4", samples=1, questions=4)
    with who.under(rw.parse(line, trained_len=TRAINED, target_len=256) if line else rw.Extension()):
        rounded, exact = cached.measure(who, 256, 0), context_.measure(who, 256, 0)
        monkeypatch.setattr(rounded_cache, "rounded", lambda x, _: x)
        assert cached.measure(who, 256, 0) == exact
    assert all(rounded[name] != exact[name] for name in ("loss", "copied_loss"))
    assert rounded["loss"] == pytest.approx(exact["loss"], abs=0.5)
    assert [one["loss"] for one in rounded["answers"]] != [one["loss"] for one in exact["answers"]]
    assert "window_loss" not in rounded


def test_bits_per_byte_are_of_the_scored_tokens(tmp_path):
    who, task = subject(tmp_path), Context(samples=1, last=10)
    got = task.measure(who, 64, 0)
    told = who.tokenizer.decode(who.passages(1)[0][-10:])
    assert got["bits_per_byte"] == pytest.approx(got["loss"] * 10 / math.log(2) / len(told.encode()))


def test_damage_of_nothing_is_nothing(tmp_path):
    who = subject(tmp_path)
    assert Damage(samples=1).measure(who, TRAINED, 0) == {
        "project": who.projects(1)[0],
        "loss": 0.0,
        "kl": pytest.approx(0, abs=1e-12),
        "agreement": 1.0,
    }
    with rw.extended(who.model, "pi:factor=8"):
        harm = Damage(samples=1).measure(who, TRAINED, 0)
    assert harm["kl"] > 1e-3
    with rw.extended(who.model, "dynamic_yarn"):
        assert Damage(samples=1).measure(who, TRAINED, 0)["kl"] < 1e-8  # untouched within the trained length


def test_damage_by_its_formulas(tmp_path):
    who = subject(tmp_path, model_=deepcopy(model()))
    who.model.lm_head.weight.data *= 20  # so that shares are far from even, and the two directions from each other
    ids = who.passages(1)[0][:TRAINED]
    with torch.no_grad():
        p = who.model(input_ids=ids[None]).logits[0].double().softmax(-1)
        with rw.extended(who.model, "pi:factor=8"):
            q = who.model(input_ids=ids[None]).logits[0].double().softmax(-1)
            got = Damage(samples=1).measure(who, TRAINED, 0)
    told = [float(p[n - 1, ids[n]] / q[n - 1, ids[n]]) for n in range(1, TRAINED)]
    assert got["loss"] == pytest.approx(sum(map(math.log, told)) / (TRAINED - 1), abs=1e-5)
    assert got["kl"] == pytest.approx(float((p * (p / q).log()).sum() / TRAINED), rel=1e-4)
    assert got["kl"] != pytest.approx(float((q * (q / p).log()).sum() / TRAINED), rel=1e-2)
    assert got["agreement"] == pytest.approx(sum(map(int, p.argmax(-1) == q.argmax(-1))) / TRAINED)
    assert 0 < got["agreement"] < 1


def test_damage_of_many_words_is_of_evenly_spaced_positions(tmp_path, monkeypatch):
    who = subject(tmp_path)
    ids = who.passages(1)[0][:TRAINED]
    words = len(who.model.get_input_embeddings().weight)
    monkeypatch.setattr(damage, "LOGITS_KEPT", words * TRAINED // 4)
    with torch.no_grad():
        p = who.model(input_ids=ids[None]).logits[0].double().softmax(-1)[::4]
        with rw.extended(who.model, "pi:factor=8"):
            q = who.model(input_ids=ids[None]).logits[0].double().softmax(-1)[::4]
            some = Damage(samples=1).measure(who, TRAINED, 0)
            monkeypatch.undo()
            every = Damage(samples=1).measure(who, TRAINED, 0)
    assert some["kl"] == pytest.approx(float((p * (p / q).log()).sum() / len(p)), rel=1e-4)
    assert some["kl"] != every["kl"]
    assert some["loss"] == every["loss"]  # of every token


def test_without_extension_for_a_block(tmp_path):
    who = subject(tmp_path)
    ids = who.passages(1)[0][None]
    original = who.model(input_ids=ids).logits
    with rw.extended(who.model, "window:window=8"):
        extended = who.model(input_ids=ids).logits
        with without_extension(who.model):
            assert torch.equal(who.model(input_ids=ids).logits, original)
        assert torch.equal(who.model(input_ids=ids).logits, extended)
    assert not torch.allclose(original, extended)


def test_an_oracle_of_the_answer_is_right_at_every_depth(tmp_path, monkeypatch):
    who, task = subject(tmp_path, longest=200), Passkey(samples=5)
    prompts = [task.prompt(who, 200, sample) for sample in range(5)]
    assert [task.depth(n) for n in range(5)] == [0.1, 0.3, 0.5, 0.7, 0.9]
    for prompt in prompts:
        assert prompt.length == 200
        assert prompt.text.count(prompt.answer.strip()) == 2  # one line with two sentences
        assert prompt.answer.strip() in prompt.text
    assert len({prompt.answer for prompt in prompts}) == 5
    _know(who.model, monkeypatch)
    assert all(task.measure(who, 200, sample)["right"] for sample in range(5))
    monkeypatch.undo()
    assert not any(task.measure(who, 200, sample)["right"] for sample in range(5))


def _know(model, monkeypatch):
    """Every token is followed by what comes next in the text: the model reads ahead."""
    import ropewalk.measure.tasks.answers as answers
    from ropewalk.hf.use.long_text import TokenScores

    def told(model, ids, **_):
        return TokenScores(torch.zeros(1, ids.shape[1] - 1), torch.ones(1, ids.shape[1] - 1, dtype=torch.bool))

    monkeypatch.setattr(answers, "score_tokens", told)


ASKING = [
    *(each for each in EXAMPLES if hasattr(each[0], "prompt")),
    *(
        (Coreference(needles=4), (1000, 1100)),
        (GraphWalks(depth=0), (1200, 1300)),
        (JsonRecall(ids="uuid"), (900, 1000)),
    ),
    *((Ruler(kind="niah_multiquery"), (1000, 1100)), (Latent(kind="known"), (400, 500))),
]


@pytest.mark.sampled(cases=6)
@pytest.mark.parametrize(("task", "lengths"), ASKING, ids=str)
def test_prompts_depend_on_seed_length_and_sample_and_on_no_extension(tmp_path, task, lengths):
    who, (short, long) = subject(tmp_path, longest=120), lengths
    plain = task.prompt(who, short, 1)
    with rw.extended(who.model, "window:window=8"):
        assert task.prompt(who, short, 1) == plain
    other = Subject(model=who.model, tokenizer=who.tokenizer, corpus=who.corpus, longest=120, seed=1)
    prompts = [plain, task.prompt(who, short, 2), task.prompt(who, long, 1), task.prompt(other, short, 1)]
    assert len({tuple(prompt.ids) for prompt in prompts}) == 4


@pytest.mark.sampled(cases=3)
@pytest.mark.parametrize(("task", "lengths"), ASKING, ids=str)
def test_prompts_that_are_tried_before_are_asked_later(tmp_path, monkeypatch, task, lengths):
    made, tried = type(task).prompt, []
    monkeypatch.setattr(type(task), "prompt", lambda *asked: tried.append(asked[2:]) or made(*asked))
    replace(task, samples=1).require(subject(tmp_path, longest=120), lengths)
    assert set(tried) == {(length, 0) for length in lengths}


def test_filler_may_be_grass(tmp_path):
    who = subject(tmp_path, longest=200)
    assert "The sky is blue. The sun is yellow." in Passkey(samples=2, filler="grass").prompt(who, 200, 1).text


def test_repetition_scores_the_end_of_the_repeated_text(tmp_path):
    who = subject(tmp_path)
    got = Repetition(samples=1).measure(who, 64, 0)
    text = torch.cat([who.passages(1)[0][: TRAINED // 2]] * 4)
    with torch.no_grad():
        logits = model()(input_ids=text[None]).logits[0]
    hits = (logits[:-1].argmax(-1) == text[1:])[-TRAINED // 2 :]
    assert got["accuracy"] == pytest.approx(float(hits.float().mean()))


@pytest.mark.parametrize(("length", "judged"), [(100, 16), (64, 16), (12, 11)])
def test_repetition_repeats_and_scores_half_the_trained_length(tmp_path, monkeypatch, length, judged):
    who, read = subject(tmp_path), []

    def told(model, ids):
        """The last 16 are right and cost 1, what is before them is wrong and costs 0."""
        read.append(ids[0])
        late = torch.arange(ids.shape[1] - 1, 0, -1) <= 16
        return TokenLosses(late[None].float(), late[None])

    monkeypatch.setattr("ropewalk.measure.tasks.repetition.token_losses", told)
    project = who.projects(2)[1]
    assert Repetition(samples=2).measure(who, length, 1) == {"project": project, "accuracy": 1.0, "loss": 1.0}
    once = who.passages(2)[1][:16].tolist()
    assert read[0].tolist() == [once[n % 16] for n in range(length)]
    monkeypatch.setattr(TokenLosses, "accuracy", lambda self, last: last)
    assert Repetition(samples=2).measure(who, length, 1)["accuracy"] == judged


def test_repetition_is_asked_at_the_shortest_and_the_longest():
    assert Repetition(samples=1).at([128, 64, 256], TRAINED) == (64, 256)
    assert Repetition(samples=1).at([64], TRAINED) == (64,)


def test_filler_is_all_the_text_from_any_line_on(tmp_path):
    who = subject(tmp_path, longest=60, count=200)
    texts = who.tokenizer.batch_decode([ids.tolist() for ids in who.passages(8)])
    whole = "".join(text + "\n" for text in texts)
    begins = {whole.index(who.filler(Random(n)).partition("\n")[0] + "\n") for n in range(30)}
    assert len(begins) > 4
    assert all(begin == 0 or whole[begin - 1] == "\n" for begin in begins)
    for n in range(5):
        filler = who.filler(Random(n))
        assert len(filler) == len(whole)
        assert filler in whole + whole


@pytest.mark.sampled(cases=1)
@pytest.mark.parametrize("kind", ["llama", "gemma3_text", "qwen3_next"])
@pytest.mark.parametrize("line", ["rope", "self_extend:window=8,group=4", "dynamic_yarn", "streaming:window=8"])
def test_questions_in_one_batch_are_answered_as_one_by_one(kind, line, monkeypatch):
    """Of different lengths, after one text; layers whose caches cannot be copied by rows are asked one by one."""
    model, rng = tiny(kind), torch.Generator().manual_seed(0)
    ids, *texts = (torch.randint(3, 97, (count,), generator=rng) for count in (70, 5, 9, 3, 14))
    with extended(model, line, target_len=128):
        cache = DynamicCache(config=model.config)
        score_tokens(model, ids[None], cache=cache)
        read = []
        for most in (2**30, 3 * held_bytes(cache), 1):
            monkeypatch.setattr(context, "MOST_BYTES", most)
            read.append(context.scores_after(model, ids[None], [text.tolist() for text in texts], cache))
        alone = [score_tokens(model, torch.cat([ids, text])[None]) for text in texts]
    for together in read:
        for one, other, text in zip(together, alone, texts, strict=True):
            assert one.losses_bn.shape == one.hits_bn.shape == (1, len(text))
            torch.testing.assert_close(one.losses_bn, other.losses[:, -len(text) :], atol=1e-4, rtol=1e-4)
