"""Between two answers of whatever reads or writes piece by piece, model and torch are as the caller left them."""

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import PreTrainedTokenizerFast

from ropewalk import extended, nbce_stream, score, stream
from ropewalk.hf.use.long_text import read, score_tokens

from hf.models import tiny
from hf.use.questions import CONTEXTS, QUESTION, WORDS

IDS = torch.arange(3, 33)[None]


def tokenizer():
    own = Tokenizer(WordLevel(WORDS, unk_token="<unk>"))
    own.pre_tokenizer = Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=own, unk_token="<unk>", bos_token="<s>")


def of_contexts(model, **given):
    return nbce_stream(model, tokenizer(), CONTEXTS, QUESTION, max_new_tokens=8, **given)


def of_a_text(model, **given):
    return stream(model, IDS, piece=8, max_new_tokens=8, **given)


def of_pieces(model):
    return read(model, IDS, piece=8)


@pytest.fixture
def model():
    """In training, but for one module that is kept in evaluation."""
    made = tiny("llama", num_hidden_layers=2).train()
    made.generation_config.eos_token_id = None
    made.model.layers[0].mlp.eval()
    return made


def state(model):
    """What a generator could leave behind it."""
    switches = torch.is_grad_enabled(), torch.is_inference_mode_enabled(), model.config._attn_implementation
    return switches, [module.training for module in model.modules()], [len(m._forward_hooks) for m in model.modules()]


@pytest.mark.parametrize("started", [of_contexts, of_a_text, of_pieces])
@pytest.mark.parametrize("text", ["", "rerope:window=8"])
def test_a_model_can_be_trained_between_two_answers(model, started, text):
    with extended(model, text or "rope"):
        before, answers = state(model), started(model)
        assert state(model) == before
        for _ in range(3):
            next(answers)
            assert state(model) == before
            model(IDS, labels=IDS, use_cache=False).loss.backward()
        assert all(each.grad is not None for each in model.parameters())


@pytest.mark.parametrize("started", [of_contexts, of_a_text, of_pieces])
def test_two_may_be_begun_and_left_in_any_order(model, started):
    before = state(model)
    first, second = started(model), started(model)
    next(first)
    next(second)
    first.close()
    second.close()
    assert state(model) == before


@pytest.mark.parametrize("started", [of_contexts, of_a_text])
def test_whoever_watches_finds_them_so_too(model, started):
    before, seen = state(model), []
    next(started(model, progress=lambda done, total: seen.append(state(model))))
    assert seen
    assert all(each == before for each in seen)


@pytest.mark.parametrize("scored", [score, lambda model, ids: score_tokens(model, ids).losses])
def test_what_is_scored_holds_no_graph(model, scored):
    assert not scored(model, IDS).requires_grad


@pytest.mark.parametrize("started", [of_contexts, of_a_text, of_pieces])
def test_the_modules_are_listed_once_and_not_at_every_token(model, started, monkeypatch):
    """A walk through a model of thousands of modules costs as much as a token."""
    answers, walks = started(model), []
    walk = model.modules

    def counted():
        walks.append(None)
        return walk()

    next(answers)
    monkeypatch.setattr(model, "modules", counted)
    for _ in range(3):
        next(answers)
    assert walks == []


@pytest.mark.parametrize("started", [of_contexts, of_a_text, of_pieces])
def test_a_failing_pass_leaves_nothing_behind(model, started):
    before, answers = state(model), started(model)
    next(answers)

    def fails(*_):
        raise RuntimeError("of the model")

    hook = model.model.layers[1].register_forward_pre_hook(fails)
    with pytest.raises(RuntimeError, match="of the model"):
        next(answers)
    hook.remove()
    assert state(model) == before
