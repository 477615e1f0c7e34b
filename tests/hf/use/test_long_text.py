"""Scores are the losses of the model's own logits; a stream is what generating without a cache would give."""

import contextlib
import itertools

import pytest
import torch
from torch.nn.functional import cross_entropy

from ropewalk import Conflict, InvalidValue, extended, score, stream
from ropewalk.hf.use import long_text
from ropewalk.hf.use.long_text import read, sampled_logits, score_tokens

from hf.models import tiny
from hf.traces import logits

IDS = torch.randint(3, 97, (2, 60), generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize("name", ["llama", "granite", "cohere2", "gpt_neox"])
@pytest.mark.parametrize("piece", [7, 59, 2048])
def test_scores_are_the_losses_of_the_models_logits(name, piece):
    """granite and cohere scale their logits."""
    model = tiny(name)
    expected = cross_entropy(logits(model, IDS)[:, :-1].transpose(1, 2), IDS[:, 1:], reduction="none")
    torch.testing.assert_close(score(model, IDS, piece=piece), expected, rtol=1e-3, atol=1e-3)


def test_a_cap_counts_where_the_first_logits_are_too_small_to_show_it():
    model = tiny("gemma2", num_hidden_layers=2)
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(0.5)
    expected = cross_entropy(logits(model, IDS)[:, :-1].transpose(1, 2), IDS[:, 1:], reduction="none")
    torch.testing.assert_close(score(model, IDS), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["llama", "cohere2", "gemma2"])
def test_a_hit_is_the_token_with_the_highest_logit(name):
    """cohere's logits are scaled, gemma2's capped."""
    model = tiny(name, num_hidden_layers=2)
    chosen = logits(model, IDS)[:, :-1].argmax(-1)
    text = torch.where(torch.arange(59) % 3 == 0, chosen, IDS[:, 1:])  # every third token is what the model would say
    judged = score_tokens(model, torch.cat([IDS[:, :1], text], 1), piece=16)
    again = logits(model, torch.cat([IDS[:, :1], text], 1))[:, :-1].argmax(-1)
    assert torch.equal(judged.hits, again == text)
    assert 0 < judged.hits.float().mean() < 1
    assert torch.equal(judged.losses, score(model, torch.cat([IDS[:, :1], text], 1), piece=16))


@pytest.mark.parametrize("text", ["", "yarn:factor=4", "alibi"])
def test_tokens_stand_where_their_numbers_say(text):
    """Every second number: rotation sees distances twice as large, in one text."""
    model = tiny("llama", num_hidden_layers=2)
    numbers = 2 * torch.arange(60)
    with extended(model, text) if text else contextlib.nullcontext():
        given = {
            "position_ids": numbers[None].expand(2, -1),
            "attention_mask": torch.ones_like(IDS),
            "use_cache": False,
        }
        whole = logits(model, IDS, **given)
        judged = score_tokens(model, IDS, numbers=numbers)
    expected = cross_entropy(whole[:, :-1].transpose(1, 2), IDS[:, 1:], reduction="none")
    torch.testing.assert_close(judged.losses, expected, rtol=1e-3, atol=1e-3)
    assert not torch.allclose(judged.losses[:, 5:], score(model, IDS)[:, 5:])


def test_scores_where_logits_are_capped():
    model = tiny("gemma2", num_hidden_layers=2)
    expected = cross_entropy(logits(model, IDS)[:, :-1].transpose(1, 2), IDS[:, 1:], reduction="none")
    torch.testing.assert_close(score(model, IDS, piece=16), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.sampled(cases=10)
@pytest.mark.parametrize("name", ["llama", "cohere2", "gemma2", "gpt_neox"])
@pytest.mark.parametrize(("every", "piece"), [(1, 7), (3, 7), (7, 7), (16, 5), (100, 8), (4, 2048)])
def test_logits_of_some_tokens_are_those_of_the_whole(name, every, piece, monkeypatch):
    monkeypatch.setattr(
        long_text, "LOGITS_PER_CHUNK", 300
    )  # three tokens of these models at once, where the head is asked
    model = tiny(name, num_hidden_layers=2)
    whole = logits(model, IDS)
    some = sampled_logits(model, IDS, every=every, piece=piece)
    torch.testing.assert_close(some.logits, whole[:, ::every], rtol=1e-3, atol=1e-3)
    expected = cross_entropy(whole[:, :-1].transpose(1, 2), IDS[:, 1:], reduction="none")
    torch.testing.assert_close(some.losses, expected, rtol=1e-3, atol=1e-3)


def test_a_batch_of_questions_costs_no_logits_but_those_of_one_text():
    """With 262,144 words the probe of a batch once took more memory than anything that was read."""
    model, rows = tiny("llama"), list[int]()
    model.get_output_embeddings().register_forward_hook(lambda _, __, answer: rows.append(answer[..., 0].numel()))
    score_tokens(model, torch.arange(24 * 40).reshape(24, 40) % 60)
    assert rows
    assert max(rows) <= long_text.PROBED


@pytest.mark.parametrize("text", ["rerope:window=8+log_n", "dynamic_yarn", "streaming:window=10,n_sink=2"])
def test_scores_under_an_extension(text):
    model = tiny("llama", num_hidden_layers=2)
    with extended(model, text):
        whole = logits(model, IDS, use_cache=False)
        expected = cross_entropy(whole[:, :-1].transpose(1, 2), IDS[:, 1:], reduction="none")
        torch.testing.assert_close(score(model, IDS, piece=13), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("text", ["streaming:window=10,n_sink=2", "rerope:window=8"])
def test_a_stream_is_the_definition_at_every_step(text):
    model = tiny("llama", num_hidden_layers=2)
    with extended(model, text):
        made = torch.stack(list(stream(model, IDS[:, :20], max_new_tokens=60, piece=9)), 1)
        whole = logits(model, torch.cat([IDS[:, :20], made], 1), use_cache=False)
    assert made.tolist() == whole[:, 19:-1].argmax(-1).tolist()


def test_a_stream_has_no_end_of_its_own_and_can_be_drawn_again():
    model = tiny("llama", num_hidden_layers=1)
    given = {"temperature": 1.0, "top_k": 20, "top_p": 0.9, "seed": 3}
    with extended(model, "streaming:window=10,n_sink=2"):
        first, again, other = (
            torch.stack(list(itertools.islice(stream(model, IDS[:, :5], **{**given, "seed": seed}), 150)))
            for seed in (3, 3, 4)
        )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_modes_are_put_back_and_bad_input_is_refused():
    model = tiny("llama", num_hidden_layers=1).train()
    score(model, IDS)
    assert model.training
    for ids in (IDS[0], IDS.float(), IDS[:, :0]):
        with pytest.raises(InvalidValue, match="ids"):
            score(model, ids)
    with pytest.raises(InvalidValue, match="temperature"):
        next(stream(model, IDS, temperature=-1.0))


def test_drawing_without_bounds():
    model = tiny("llama", num_hidden_layers=1)
    drawn = list(stream(model, IDS[:, :5], temperature=1.0, max_new_tokens=3))
    assert [token.shape for token in drawn] == [(2,)] * 3
    for name, value in (("top_k", -3), ("top_p", 2.0), ("temperature", float("nan"))):
        with pytest.raises(InvalidValue, match=name):
            stream(model, IDS, **{"temperature": 1.0, name: value})


def test_a_stream_does_not_outlive_its_extension():
    model = tiny("llama", num_hidden_layers=1)
    with extended(model, "streaming:window=10,n_sink=2"):
        tokens = stream(model, IDS[:, :5])
        next(tokens)
    with pytest.raises(Conflict, match="the extension was changed or removed while"):
        next(tokens)


def test_a_text_is_read_in_pieces_and_progress_is_told_after_each():
    model, told, read = tiny("llama", num_hidden_layers=1), [], []
    watch = model.register_forward_pre_hook(
        lambda _, __, given: read.append(given["input_ids"].shape[1]), with_kwargs=True
    )
    tokens = stream(model, IDS, piece=25, max_new_tokens=2, progress=lambda *each: told.append((*each, len(read))))
    assert (told, read) == ([], [])
    next(tokens)
    assert told == [(25, 60, 1), (50, 60, 2), (60, 60, 3)]
    assert read == [25, 25, 10]
    watch.remove()


def test_tokens_that_the_model_does_not_know():
    model = tiny("llama")
    for way in (score, stream, read):
        with pytest.raises(InvalidValue, match=r"ids must be from 0 to \d+, the model's vocabulary, got '3 to 100000'"):
            way(model, torch.tensor([[3, 100_000]]))


@pytest.mark.parametrize("text", ["streaming:window=10,n_sink=2", "window:window=9", "rerope:window=8", "dynamic_yarn"])
@pytest.mark.parametrize("piece", [7, 16])
def test_pieces_are_the_definition_of_the_whole(text, piece):
    """What one pass without a cache says of every token, window and distances included."""
    model = tiny("llama", num_hidden_layers=2)
    with extended(model, text):
        whole = logits(model, IDS, use_cache=False)[:, :-1]
        parts = list(read(model, IDS, piece=piece))
    losses, hits = (torch.cat(each, 1) for each in list(zip(*parts, strict=True))[:2])
    expected = cross_entropy(whole.transpose(1, 2), IDS[:, 1:], reduction="none")
    torch.testing.assert_close(losses, expected, rtol=1e-4, atol=1e-4)
    assert torch.equal(hits, whole.argmax(-1) == IDS[:, 1:])
    assert [part.losses.shape[1] for part in parts] == [piece] * (59 // piece) + [59 % piece]


def test_a_cache_grows_with_the_text_or_with_the_reach():
    model = tiny("llama", num_hidden_layers=2)
    a_token = 2 * 2 * 2 * 16 * 4 * len(IDS)  # layers, keys and values, heads, dimensions, bytes
    assert [part.cache_bytes for part in read(model, IDS, piece=20)] == [a_token * n for n in (20, 40, 59)]
    with extended(model, "streaming:window=10,n_sink=2"):
        assert [part.cache_bytes for part in read(model, IDS, piece=20)] == [a_token * 12] * 3


def test_a_reading_does_not_outlive_its_extension():
    model = tiny("llama", num_hidden_layers=1)
    with extended(model, "streaming:window=10,n_sink=2"):
        parts = read(model, IDS, piece=20)
        next(parts)
        assert torch.is_grad_enabled()  # between the pieces, everything is the caller's
    with pytest.raises(Conflict, match="the extension was changed or removed while"):
        next(parts)
