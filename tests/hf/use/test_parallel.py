"""Contexts read apart and joined in attention: as all tokens at once in float64, under one mask of who sees whom."""

import itertools
import math
from unittest import mock

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

import ropewalk as rw
from ropewalk import DoesNotFit, InvalidValue, extended, nbce_generate, parse
from ropewalk.hf.attach.context_keys import ContextKeys, merge
from ropewalk.methods.decoding import APE

from hf.models import tiny
from hf.use.questions import CONTEXTS, QUESTION, WORDS

PREFIX, COUNT = "w3 w4 w5", 6


@pytest.fixture(scope="module")
def tokenizer():
    own = Tokenizer(WordLevel(WORDS, unk_token="<unk>"))
    own.pre_tokenizer = Whitespace()
    own.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return PreTrainedTokenizerFast(tokenizer_object=own, unk_token="<unk>", bos_token="<s>")


def unending(name, **changed):
    made = tiny(name, num_hidden_layers=2, **changed)
    made.generation_config.eos_token_id = None
    return made


@pytest.fixture(scope="module")
def model():
    return unending("llama").double()


def answered(model, tokenizer, contexts, *, temperature=1.0, scale=1.0, **given):
    """The tokens, and the distributions that they were chosen from."""
    seen, combine = [], APE.combine

    def watched(rule, logp, last=None):
        seen.append(logp[0])
        return combine(rule, logp, last)

    given = {"prefix": PREFIX, "max_new_tokens": COUNT, **given}
    rule = APE(temperature=temperature, scale=scale)
    with mock.patch.object(APE, "combine", watched):
        made = list(rw.ape_stream(model, tokenizer, contexts, QUESTION, decoding=rule, **given))
    return made, torch.stack(seen)


def words(text):
    return [int(word[1:]) for word in text.split()]


def dense(model, contexts, made, *, temperature, scale, prefix=PREFIX):
    """The distributions after the question and after each made token: every product of every token, in float64."""
    parts = [[1, *words(prefix)], *map(words, contexts), words(QUESTION) + made]
    part = torch.cat([torch.full((len(ids),), number) for number, ids in enumerate(parts)])
    begin, last = len(parts[0]), len(parts) - 1
    after = begin + max(map(len, parts[1:-1]))
    firsts = [0, *[begin] * (last - 1), after]
    at = torch.cat([first + torch.arange(len(ids)) for first, ids in zip(firsts, parts, strict=True)])
    earlier = torch.arange(len(at))[:, None] >= torch.arange(len(at))
    same_or_prefix = (part[:, None] == part) | (part == 0)
    sees = earlier & (same_or_prefix | (part[:, None] == last))
    of_context = (part > 0) & (part < last)
    asked = (part == last)[:, None] & of_context
    x = model.model.embed_tokens(torch.tensor([list(itertools.chain(*parts))]))
    for layer in model.model.layers:
        own, h = layer.self_attn, layer.input_layernorm(x)
        q, k, v = (p(h).view(len(at), -1, 16).transpose(0, 1) for p in (own.q_proj, own.k_proj, own.v_proj))
        q, k, v = turned(q, at), turned(k, at).repeat_interleave(2, 0), v.repeat_interleave(2, 0)
        logit = (q @ k.mT / 4 / torch.where(asked, temperature, 1.0)).exp() * sees
        contexts_sum, rest_sum = (logit * asked).sum(-1, keepdim=True), (logit * ~asked).sum(-1, keepdim=True)
        power = temperature * scale
        # Kept apart from the code: weights of contexts are exp(c) Z^(TS - 1), then all are divided by their sum.
        lifted = torch.where(asked, logit * contexts_sum.clamp(min=1e-300) ** (power - 1), logit)
        out = lifted / (contexts_sum**power * (contexts_sum > 0) + rest_sum) @ v
        x = x + own.o_proj(out.transpose(0, 1).flatten(1))[None]
        x = x + layer.mlp(layer.post_attention_layernorm(x))
    logits = model.lm_head(model.model.norm(x))[0]
    return logits[-len(made) - 1 :].log_softmax(-1)


def turned(x, at):
    """Halves of 16 dimensions, rotated by 10000^(-i/8)."""
    angle = at[:, None].double() * 10000.0 ** (-torch.arange(8).double() / 8)
    first, second = x[..., :8], x[..., 8:]
    return torch.cat([first * angle.cos() - second * angle.sin(), second * angle.cos() + first * angle.sin()], -1)


@pytest.mark.parametrize(("temperature", "scale"), [(0.9, 0.9), (0.5, 1.3), (1.0, 1.0)])
@torch.no_grad()
def test_several_contexts_are_the_formula_over_all_tokens(model, tokenizer, temperature, scale):
    given = {"temperature": temperature, "scale": scale}
    made, seen = answered(model, tokenizer, CONTEXTS, **given)
    expected = dense(model, CONTEXTS, made, **given)[:-1]
    torch.testing.assert_close(seen.double(), expected, rtol=1e-5, atol=1e-4)  # norms and angles are float32
    assert made == expected.argmax(-1).tolist()
    assert made != answered(model, tokenizer, CONTEXTS[:1], **given)[0], "the other contexts change nothing"


@pytest.mark.parametrize("given", [{"rows_at_once": 1}, {"rows_at_once": 3}, {"prefix": ""}])
@torch.no_grad()
def test_rows_and_an_empty_prefix(model, tokenizer, given):
    made, seen = answered(model, tokenizer, CONTEXTS, temperature=0.7, **given)
    expected = dense(model, CONTEXTS, made, temperature=0.7, scale=1.0, prefix=given.get("prefix", PREFIX))[:-1]
    torch.testing.assert_close(seen.double(), expected, rtol=1e-5, atol=1e-4)


def test_small_pieces_change_nothing_and_progress_counts_all(model, tokenizer, monkeypatch):
    whole = answered(model, tokenizer, CONTEXTS, temperature=0.7)[1]
    monkeypatch.setattr("ropewalk.hf.use.parallel.CHUNK_LEN", 3)
    monkeypatch.setattr("ropewalk.hf.use.parallel.MOST_PRODUCTS", 1)
    told = []
    given = {"rows_at_once": 2, "progress": lambda done, total: told.append((done, total))}
    torch.testing.assert_close(answered(model, tokenizer, CONTEXTS, temperature=0.7, **given)[1], whole)
    total = 4 + 2 * 40 + 2 * 6 + 2  # the prefix with its first token, two groups padded to their longest, the question
    assert told[-1] == (total, total)
    assert [done for done, _ in told] == sorted({done for done, _ in told})


@pytest.mark.sampled(cases=3)
@pytest.mark.parametrize("name", ["llama", "qwen3", "gpt_neox", "phi3", "olmo2", "mixtral", "stablelm", "ministral3"])
def test_one_context_at_1_and_1_is_one_text(name, tokenizer):
    own = unending(name)
    made, seen = answered(own, tokenizer, CONTEXTS[1:2])
    assert_is_one_text(own, made, seen)


def test_under_a_schedule_that_tables_hold(tokenizer):
    own = unending("llama")
    made, seen = answered(own, tokenizer, CONTEXTS[1:2], extension="yarn:factor=4")
    plain = answered(own, tokenizer, CONTEXTS[1:2])[1]
    assert (plain[0] - seen[0]).abs().max() > 0.01, "the schedule changes nothing"
    with extended(own, "yarn:factor=4"):
        assert_is_one_text(own, made, seen)


def assert_is_one_text(model, made, seen):
    ids = [1, *words(PREFIX), *words(CONTEXTS[1]), *words(QUESTION), *made[:-1]]
    with torch.no_grad():
        expected = model(torch.tensor([ids]), use_cache=False).logits[0, -COUNT:].log_softmax(-1)
    torch.testing.assert_close(seen, expected, rtol=1e-5, atol=1e-4)


def test_merging_by_hand():
    """Logits ln 2 and ln 3 of two contexts' keys at temperature 1/2 are sums of 4 and 9; ln 5 of the question's."""
    dim = math.sqrt(2)
    q, rest = torch.tensor([[[[dim, 0.0]]]]).double(), ContextKeys(*(torch.zeros(1, 1, 1, 2).double() for _ in "kv"))
    rest.k_bgjd[..., 0], rest.v_bgjd[..., 0] = math.log(5), 1
    keys = torch.tensor([[[[math.log(2), 0.0], [math.log(3), 0.0]]]]).double()
    contexts = ContextKeys(keys, torch.tensor([[[[0.0, 13.0], [13.0, 0.0]]]]).double())
    # The sum of 13 to the power of 1/2 times 2 is 13: a share of 13/18; within the contexts 4/13 and 9/13.
    got = merge(q, contexts, rest, APE(temperature=0.5, scale=2), 1 / dim)
    torch.testing.assert_close(got, torch.tensor([[[[(13 / 18) * 9 + 5 / 18, (13 / 18) * 4]]]]).double())


def test_the_model_is_left_alone_and_lends_its_weights(tokenizer):
    own, ids = unending("llama"), torch.tensor([[5, 6, 7]])
    before, named = own(ids).logits, own.config._attn_implementation
    own.train()
    answer = rw.ape_stream(own, tokenizer, CONTEXTS, QUESTION)
    next(answer)
    assert all(module.training for module in own.modules())
    assert own.config._attn_implementation == named
    assert torch.equal(own.eval()(ids).logits, before)
    own.lm_head.weight.data.zero_()  # also for the answer under way: every token is as likely as the first
    assert next(answer) == 0


def test_it_ends_where_the_model_ends_it_and_tokens_can_be_drawn_again(tokenizer):
    own = unending("llama")
    full = list(rw.ape_stream(own, tokenizer, CONTEXTS, QUESTION, max_new_tokens=8))
    own.generation_config.eos_token_id = full[3]
    ended = list(rw.ape_stream(own, tokenizer, CONTEXTS, QUESTION, max_new_tokens=8))
    assert ended == full[: full.index(full[3])]
    own.generation_config.eos_token_id = None
    given = {"temperature": 1.0, "top_k": 20, "max_new_tokens": 8}
    drawn = [list(rw.ape_stream(own, tokenizer, CONTEXTS, QUESTION, seed=seed, **given)) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("gemma2", "layer 0 has a window of 12 keys; use nbce"),
        ("llama4_text", "layer 0 has chunks of 12 tokens; use nbce"),
        ("granite_swa", "layer 0 has sinks"),
        ("deepseek_v3", "its cache holds something else than each layer's keys and values; use nbce"),
        ("bloom", "attention interface"),
    ],
)
def test_models_that_cannot_be_exact_are_refused(name, match, tokenizer):
    with pytest.raises(DoesNotFit, match=match):
        rw.ape_stream(unending(name), tokenizer, CONTEXTS, QUESTION)


def test_a_model_that_reads_the_length_of_its_cache_is_refused(tokenizer):
    """Its queries are scaled by what the cache holds: it shows where contexts lie outside the cache."""
    own = unending("llama")
    own.model.layers[0].self_attn.register_forward_hook(scaled_by_length, with_kwargs=True)
    with pytest.raises(DoesNotFit, match="read apart changes the logits of LlamaForCausalLM by"):
        rw.ape_stream(own, tokenizer, CONTEXTS, QUESTION)


def scaled_by_length(module, args, kwargs, output):
    cache = kwargs["past_key_values"]
    return output if cache is None else (output[0] * cache.get_seq_length(), *output[1:])


def test_too_long_for_learned_positions(tokenizer):
    own = unending("gpt2", n_positions=32)
    with pytest.raises(DoesNotFit, match="at most the 32 positions"):
        rw.ape_stream(own, tokenizer, CONTEXTS, QUESTION)


def test_refusals(tokenizer):
    own = unending("llama")
    for contexts, question, more, match in (
        ([], QUESTION, {}, "a list of texts"),
        ("w5 w6", QUESTION, {}, "a list of texts"),
        (["w5", ""], QUESTION, {}, "at least one token each"),
        (CONTEXTS, "", {}, "question must be not empty"),
        (CONTEXTS, QUESTION, {"rows_at_once": 0}, "rows_at_once"),
        (CONTEXTS, QUESTION, {"decoding": "nbce"}, "use rw.nbce_stream"),
        (CONTEXTS, QUESTION, {"decoding": "ape+yarn:factor=4"}, "pass the frequencies as `extension`"),
        (CONTEXTS, QUESTION, {"extension": "rerope:window=8"}, "reach"),
        (CONTEXTS, QUESTION, {"extension": "log_n"}, "log_n"),
    ):
        with pytest.raises((InvalidValue, DoesNotFit), match=match):
            rw.ape_stream(own, tokenizer, contexts, question, **more)
    with extended(own, "yarn:factor=4"), pytest.raises(InvalidValue, match="pass it as `extension`"):
        rw.ape_stream(own, tokenizer, CONTEXTS, QUESTION)
    with pytest.raises(DoesNotFit, match=r"extend cannot apply ape.*use rw.ape_stream"):
        rw.extend(own, "ape")
    with pytest.raises(InvalidValue, match=r"ape joins contexts in attention.*use rw.ape_stream"):
        nbce_generate(own, tokenizer, CONTEXTS, QUESTION, decoding="ape")
    with pytest.raises(InvalidValue, match="of one reading"):
        APE().combine(torch.zeros(2, 9))
    assert parse("ape:temperature=0.8,scale=0.7").decoding == APE(temperature=0.8, scale=0.7)
