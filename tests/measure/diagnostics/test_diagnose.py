"""A diagnosis: both sides of it on the same texts, each number that of its diagnostic."""

import pytest
import torch

import ropewalk as rw
from ropewalk.measure.diagnostics.attention_weights import entropy, mass_of_first, mass_of_last, without_sinks
from ropewalk.measure.diagnostics.diagnosis import measure_sides
from ropewalk.measure.diagnostics.pass_states import bias_terms, pair_angles
from ropewalk.measure.metrics.losses import bin_means, token_losses

from measure.subjects import TRAINED, model, subject

LINE = "rerope:window=8+log_n"


@pytest.fixture(scope="module")
def who(tmp_path_factory):
    return subject(tmp_path_factory.mktemp("diagnosis"), longest=48)


@pytest.fixture(scope="module")
def found(who):
    return measure_sides(who, LINE)


def test_the_sides_are_the_base_model_and_the_extended_one(who, found):
    ids = torch.stack(who.passages(2))
    assert [side.line for side in found.sides] == ["bare", LINE]
    for side, text in zip(found.sides, (None, LINE), strict=True):
        extension = rw.parse(text, trained_len=TRAINED, target_len=48) if text else rw.Extension()
        assert side.extension == extension
        with rw.extended(model(), extension, mode="attention"):
            assert side.entropy == entropy(model(), ids[:1])
            assert side.last == mass_of_last(model(), ids[:1])
            assert side.first == mass_of_first(model(), ids[:1])
            losses = token_losses(model(), ids).losses_bn
        assert side.losses == pytest.approx(bin_means(losses.mean(0)))
        assert list(side.pairs) == pair_angles(extension, who.facts, 48)
        assert side.terms is None
    assert found.sides[0].last != found.sides[1].last


@pytest.mark.nightly
def test_the_stream_is_the_one_asked_for_or_the_usual(who, found):
    assert found.stream == rw.parse("streaming", trained_len=TRAINED, target_len=48)
    own = measure_sides(who, "streaming:window=6,n_sink=2")
    assert own.stream == own.sides[1].extension
    ids, substitute = torch.stack(who.passages(2)), who.tokenizer("\n")["input_ids"][-1]
    expected = without_sinks(model(), ids, stream=own.stream, substitute=substitute)
    for got, losses in zip(own.streams, expected, strict=True):
        assert got == pytest.approx(bin_means(losses.mean(0)))


@pytest.mark.nightly
def test_biases_are_looked_at_where_there_are_some(tmp_path):
    biased = rw.convert(model(), "qk_bias").eval()
    for name, value in biased.named_parameters():
        if name.endswith("bias"):
            value.data = torch.randn(value.shape, generator=torch.Generator().manual_seed(1))
    who = subject(tmp_path, longest=48, model_=biased)
    (side,) = measure_sides(who, texts=1).sides
    with rw.extended(biased, rw.Extension(), mode="attention"):
        assert side.terms == bias_terms(biased, torch.stack(who.passages(1)))


def test_there_must_be_something_beyond(tmp_path):
    with pytest.raises(rw.DoesNotFit, match="length must be above the trained length"):
        measure_sides(subject(tmp_path, longest=TRAINED))


def test_what_is_needed_to_repeat_it_is_there(found):
    assert {"weights", "tokenizer", "corpus", "seed"} <= set(found.marks)
    assert len(found.made["texts"]) >= 2
    assert {"torch", "transformers", "ropewalk"} <= set(found.made["versions"])
