"""Where a prompt ends, on models: exact in pieces, in batches, in `generate` however it runs; saved and refused."""

import pytest
import torch
from transformers import DynamicCache, StaticCache

import ropewalk as rw
from ropewalk import DoesNotFit, InvalidValue, extend, extended, parse
from ropewalk.attention.paged.layer import PagedLayer
from ropewalk.attention.problem import layer_terms
from ropewalk.engines.vllm.plans import plans_for
from ropewalk.hf.runtime.caches import held_bytes
from ropewalk.hf.use.long_text import score_tokens

from hf.extended import CLOSE, IDS, LENGTH, MASK, error
from hf.models import tiny
from hf.traces import logits

SWAA = "swaa:window=8,n_sink=2"
PROMPT = 30  # tokens of it, with the padding of the first row
GREEDY = {"max_new_tokens": 12, "do_sample": False}


@pytest.fixture(scope="module")
def llama():
    return tiny("llama")


def read_and_write(model, cuts, cache=None, prompt=PROMPT):
    """The logits of the prompt in these chunks, and then of one token after another."""
    parts, first = [], 0
    for size in [*cuts, *[1] * (LENGTH - prompt)]:
        stop = first + size
        with torch.no_grad(), rw.writing(prompt):
            answer = model(IDS[:, first:stop], attention_mask=MASK[:, :stop], past_key_values=cache, use_cache=True)
        cache, first = answer.past_key_values, stop
        parts.append(answer.logits)
    return torch.cat(parts, 1), cache


@pytest.mark.sampled(cases=2)
@pytest.mark.parametrize("cuts", [[30], [16, 13, 1], [1] * 30], ids=str)
@pytest.mark.parametrize("text", [SWAA, f"{SWAA}+dynamic_yarn+log_n", f"{SWAA},every=0"])
def test_a_whole_pass_is_the_prompt_in_chunks_and_then_token_by_token(llama, text, cuts):
    with extended(llama, text):
        with rw.writing(PROMPT):
            whole = logits(llama, IDS, attention_mask=MASK, use_cache=False)
        assert error(read_and_write(llama, cuts)[0], whole) < CLOSE
        read = logits(llama, IDS, attention_mask=MASK, use_cache=False)
        assert error(read, whole) > 100 * CLOSE
        torch.testing.assert_close(read[:, :PROMPT], whole[:, :PROMPT], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["gpt_oss", "gemma2", "phi3", "qwen3", "gpt_neox"])
def test_whatever_the_layers_are(name):
    model = tiny(name)
    with extended(model, SWAA):
        with rw.writing(PROMPT):
            whole = logits(model, IDS, attention_mask=MASK, use_cache=False)
        assert error(read_and_write(model, [17, 13])[0], whole) < CLOSE


def test_a_static_cache_too(llama):
    with extended(llama, SWAA):
        with rw.writing(PROMPT):
            whole = logits(llama, IDS, attention_mask=MASK, use_cache=False)
        cache = StaticCache(llama.config, max_cache_len=80)
        assert error(read_and_write(llama, [17, 13], cache)[0], whole) < CLOSE


def test_the_model_under_masks_of_its_own_gives_the_same(llama):
    """Every second layer masks the rows of two prompts of other lengths; no row of what follows is masked."""
    prompts = torch.tensor([20, 41])
    i = torch.arange(LENGTH)
    causal = (i[:, None] >= i).expand(2, -1, -1)
    near = causal & ((i[:, None] - i < 8) | (i < 2) | (i[:, None] >= prompts[:, None, None]))
    eager = tiny("llama", "eager")
    eager.load_state_dict(llama.state_dict())
    for depth, layer in enumerate(eager.model.layers):
        seen = causal if depth % 2 else near
        mask = torch.where(seen, 0.0, torch.finfo(torch.float32).min)[:, None]
        layer.self_attn.register_forward_pre_hook(
            lambda _, args, kwargs, mask=mask: (args, {**kwargs, "attention_mask": mask}), with_kwargs=True
        )
    expected = logits(eager, IDS, use_cache=False)
    with extended(llama, SWAA), rw.writing(prompts.tolist()):
        got = logits(llama, IDS, use_cache=False)
    assert float((got - expected).abs().max() / expected.abs().max()) < CLOSE


@pytest.mark.sampled(cases=2)
@pytest.mark.parametrize(
    "how",
    [
        {},
        {"prefill_chunk_size": 7},
        {"prefill_chunk_size": 39},  # the last chunk is one token, and still of the prompt
        {"cache_implementation": "static"},
        {"prompt_lookup_num_tokens": 3},
        {"num_beams": 1, "num_return_sequences": 1, "inputs_embeds": True},
    ],
    ids=str,
)
def test_generated_however_it_runs(llama, how):
    """Against passes over the whole text, each of which says where its prompt ends."""
    ids = IDS[1:, :40]
    with extended(llama, SWAA):
        expected = ids
        for _ in range(12):
            with rw.writing(40):
                token = logits(llama, expected, use_cache=False)[:, -1:].argmax(-1)
            expected = torch.cat([expected, token], 1)
        plain = torch.cat([ids, read_on(llama, ids)], 1)
        given = {"inputs": ids}
        if how.get("inputs_embeds"):
            how = {"inputs_embeds": llama.get_input_embeddings()(ids).detach()}
            given = {"input_ids": ids}
        got = llama.generate(**given, **GREEDY, **how)
        uncached = llama.generate(ids, **GREEDY, use_cache=False)
        streamed = torch.stack(list(rw.stream(llama, ids, max_new_tokens=12, piece=13)), 1)
    assert torch.equal(got[:, -12:], expected[:, -12:])
    assert torch.equal(uncached, expected)
    assert torch.equal(streamed, expected[:, -12:])
    assert not torch.equal(plain, expected)  # the window alone would have written something else


def read_on(model, ids):
    """Greedy tokens where none counts as written."""
    text = ids
    for _ in range(12):
        text = torch.cat([text, logits(model, text, use_cache=False)[:, -1:].argmax(-1)], 1)
    return text[:, ids.shape[1] :]


def test_generated_in_a_padded_batch_with_beams(llama):
    ids, mask = IDS[:, :40], MASK[:, :40]
    with extended(llama, SWAA):
        both = llama.generate(ids, attention_mask=mask, **GREEDY)
        alone = [llama.generate(ids[row : row + 1, 7 * (1 - row) :], **GREEDY) for row in (0, 1)]
        assert torch.equal(both[:, 40:], torch.cat([text[:, -12:] for text in alone]))
        beams = llama.generate(ids, attention_mask=mask, num_beams=3, **GREEDY)
        uncached = llama.generate(ids, attention_mask=mask, num_beams=3, use_cache=False, **GREEDY)
        assert torch.equal(beams, uncached)


@pytest.mark.nightly
def test_a_second_turn_reads_its_own_prompt(llama):
    """A cache goes on with what it has not read: the last token of the answer, and what a user adds. That is read."""
    first, added = IDS[1:, :30], IDS[1:, 45:57]
    with extended(llama, SWAA):
        cache = DynamicCache(config=llama.config)
        answered = llama.generate(first, past_key_values=cache, **GREEDY)
        text = torch.cat([answered, added], 1)
        expected = text
        written = torch.zeros(text.shape[1], dtype=torch.bool)
        written[30 : answered.shape[1] - 1] = True
        for _ in range(12):
            expected = torch.cat([expected, by_turns(llama, expected, written)[:, -1:].argmax(-1)], 1)
            written = torch.cat([written, torch.ones(1, dtype=torch.bool)])
        got = llama.generate(text, past_key_values=cache, **GREEDY)
    assert cache.get_seq_length() > text.shape[1]
    assert torch.equal(got, expected[:, : got.shape[1]])  # which may end early


def by_turns(model, ids, written):
    """The logits of a text that a model read and wrote in turns, a token at a time."""
    cache, parts = DynamicCache(config=model.config), []
    for place in range(ids.shape[1]):
        with torch.no_grad(), rw.writing(0 if written[place] else place + 1):
            parts.append(model(ids[:, place : place + 1], past_key_values=cache).logits)
    return torch.cat(parts, 1)


def test_the_scores_of_an_answer_are_those_of_writing_it(llama):
    with extended(llama, SWAA):
        scores = score_tokens(llama, IDS[1:], written=20, piece=17)
        with rw.writing(40):
            expected = logits(llama, IDS[1:], use_cache=False).log_softmax(-1)[0, :-1].gather(1, IDS[1, 1:, None])
    torch.testing.assert_close(scores.losses[0], -expected[:, 0], rtol=1e-4, atol=1e-4)


def test_answers_are_trained_as_they_will_be_written(llama):
    with extended(llama, SWAA):
        losses = []
        for first in (LENGTH, [30, 50]):
            llama.zero_grad()
            with rw.writing(first):
                loss = llama(IDS, labels=IDS, use_cache=False).loss
            loss.backward()
            losses.append(loss.item())
    assert losses[0] != losses[1]
    assert all(parameter.grad.isfinite().all() for parameter in llama.parameters())
    llama.zero_grad()


def test_saved_and_loaded(llama, tmp_path):
    with extended(llama, SWAA):
        expected = llama.generate(IDS[:, :40], **GREEDY)
        rw.save(llama, tmp_path)
    assert torch.equal(rw.load(tmp_path).generate(IDS[:, :40], **GREEDY), expected)


def test_the_cache_keeps_all_keys_as_that_of_full_attention(llama):
    sizes = []
    for line in ("rope+log_n", SWAA):
        with extended(llama, line), torch.no_grad():
            cache = DynamicCache(config=llama.config)
            llama(IDS, past_key_values=cache)
            sizes.append(held_bytes(cache))
    assert sizes[0] == sizes[1]


def test_prompts_of_another_number_of_rows_are_refused(llama):
    with (
        extended(llama, SWAA),
        rw.writing([1, 2, 3]),
        pytest.raises(InvalidValue, match=r"first must be a number, or one for each of 2 rows, got \[1, 2, 3\]"),
    ):
        logits(llama, IDS)


@pytest.mark.parametrize("first", [-1, True, [], [3, -1], "3"])
def test_a_prompt_has_a_length(first):
    with (
        pytest.raises(InvalidValue, match="first must be a whole number, at least 0, or one for each row"),
        rw.writing(first),
    ):
        pass


def test_refused_in_pages_where_no_one_says_where_a_prompt_ends(llama):
    words = "reading_window sees more in tokens that a model writes than in those of a prompt"
    facts = rw.Facts(trained_len=64, head_dim=8, heads=4, kv_heads=2)
    with pytest.raises(DoesNotFit, match=words):
        PagedLayer(layer_terms(parse("reading_window:window=8,n_sink=2"), facts))
    with extended(llama, SWAA) as handle:
        plans = plans_for(llama, handle, 128)
    assert isinstance(plans, DoesNotFit)
    assert words in str(plans)


def test_refused_beside_a_mask_that_a_layer_makes_itself():
    model = tiny("deepseek_v32")
    with pytest.raises(DoesNotFit, match="makes one mask for tokens that are read and written alike"):
        extend(model, "reading_window:window=8,n_sink=2")
