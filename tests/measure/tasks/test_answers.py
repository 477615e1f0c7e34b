"""What a model writes is what transformers' greedy generation writes, up to its end or what is enough."""

import pytest
import torch
from torch.nn.functional import cross_entropy

import ropewalk as rw
from ropewalk.measure.tasks import Passkey
from ropewalk.measure.tasks.answers import score_answer, write_answer

from measure.subjects import subject

NO_END = {"eos_token_id": None, "pad_token_id": 0}


@pytest.fixture
def asked(tmp_path):
    who = subject(tmp_path, longest=120)
    return who, Passkey().prompt(who, 200, 1)


@pytest.mark.parametrize("line", ["", "yarn:factor=4", "rerope:window=8", "window:window=16"])
def test_as_generate_writes_under_every_extension(asked, line):
    who, prompt = asked
    extension = rw.parse(line) if line else rw.Extension()
    ids = torch.tensor([prompt.ids])
    with rw.extended(who.model, extension):
        made = who.model.generate(ids, max_new_tokens=12, do_sample=False, **NO_END)
        said = made[0, ids.shape[1] :].tolist()
        assert who.tokenizer.eos_token_id not in said
        assert write_answer(who, prompt, 12) == who.tokenizer.decode(said)


def test_it_stops_at_its_end_and_where_it_is_enough(asked, monkeypatch):
    who, prompt = asked
    end = who.tokenizer.eos_token_id
    words = who.tokenizer.encode("the rope is long")
    told = [torch.tensor([token]) for token in (*words, end, *words)]
    monkeypatch.setattr("ropewalk.measure.tasks.answers.stream", lambda *_, **__: iter(told))
    assert write_answer(who, prompt, 99) == "the rope is long"
    assert write_answer(who, prompt, 99, lambda text: "rope" in text) == "the rope"
    monkeypatch.setattr(who.model.generation_config, "eos_token_id", [words[1], 7])
    assert write_answer(who, prompt, 99).startswith("the")
    assert "is long" not in write_answer(who, prompt, 99)


@pytest.mark.parametrize("wrong", [None, 0, 1, 2])
def test_the_verdict_is_on_every_token_of_the_answer_and_on_no_other(asked, wrong):
    who, prompt = asked
    ids = torch.tensor([prompt.ids])
    answer = who.model.generate(ids, max_new_tokens=3, do_sample=False, **NO_END)[0, ids.shape[1] :]
    if wrong is not None:
        answer[wrong] = (answer[wrong] + 1) % 300
    got = score_answer(who, prompt._replace(answer_ids=tuple(answer.tolist())))
    with torch.no_grad():
        logits = who.model(input_ids=torch.cat([ids[0], answer])[None]).logits[0]
    assert got.right == (wrong is None)
    assert got.loss == pytest.approx(float(cross_entropy(logits[-4:-1], answer)), abs=1e-5)
