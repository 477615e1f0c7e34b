"""The model that Ropewalk carries: what its card says of it."""

import json
import re
import shlex
import subprocess
from functools import cache
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

import ropewalk as rw
from ropewalk.measure.material.subject import Subject
from ropewalk.measure.metrics.losses import token_losses
from ropewalk.measure.tasks import Context, Passkey
from ropewalk.models import DEFAULT
from ropewalk.train.recipes import listing

TRAINED = 512
RESULTS = Path(__file__).resolve().parents[1] / "studies" / "results"


@pytest.fixture(scope="module")
def carried():
    model = AutoModelForCausalLM.from_pretrained(DEFAULT, dtype=torch.float32).eval()
    return Subject(model=model, tokenizer=AutoTokenizer.from_pretrained(DEFAULT), corpus="stdlib", longest=2 * TRAINED)


def mean_of(subject, task, length, name):
    return task.condense([task.measure(subject, length, sample) for sample in range(task.samples)])[name].value


def test_it_is_a_small_standard_llama():
    config = json.loads((DEFAULT / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert config["max_position_embeddings"] == TRAINED
    assert config["rope_parameters"] == {"rope_theta": 10000.0, "rope_type": "default"}
    assert sum(path.stat().st_size for path in DEFAULT.iterdir()) < 16 * 2**20
    assert 5e6 < sum(each.numel() for each in load_file(DEFAULT / "model.safetensors").values()) < 8e6


@pytest.mark.sampled(cases=1)
@pytest.mark.parametrize("filler", ["text", "grass"])
def test_it_finds_pass_keys_within_its_length_at_every_depth(carried, filler):
    """The card has the share of 400; twenty depths show that it is no chance."""
    assert mean_of(carried, Passkey(samples=20, filler=filler), TRAINED, "right") >= 0.95


@pytest.mark.nightly
def test_a_key_that_is_told_right_before_the_question_is_found(carried):
    """Where the model before this one failed in one of ten."""
    task = Passkey(samples=400)
    found = [task.measure(carried, TRAINED, sample)["right"] for sample in range(380, 400)]
    assert sum(found) >= 0.95 * len(found)


@pytest.mark.nightly
def test_the_classical_picture(carried):
    """Twice the trained length: bare it breaks, interpolated untuned it is bad everywhere, YaRN and ReRoPE hold."""
    task = Context(samples=4)
    within, beyond = (mean_of(carried, task, length, "loss") for length in (TRAINED, 2 * TRAINED))
    assert beyond > within + 0.5
    losses = {}
    for line in ("pi:factor=2", "yarn:factor=2", "rerope:window=256+log_n"):
        with rw.extended(carried.model, line):
            losses[line] = mean_of(carried, task, 2 * TRAINED, "loss")
            if line == "pi:factor=2":
                assert mean_of(carried, task, TRAINED, "loss") > within + 0.5
    assert losses["yarn:factor=2"] < min(losses["pi:factor=2"], beyond) - 0.5
    assert losses["rerope:window=256+log_n"] < within + 0.05


def logits(model, ids):
    with torch.no_grad():
        return model(input_ids=ids, use_cache=False).logits


def random_ids(count, seed=0):
    return torch.randint(5, 1000, (1, count), generator=torch.Generator().manual_seed(seed))


@pytest.mark.nightly
@pytest.mark.parametrize("line", ["dynamic_ntk", "dynamic_yarn"])
def test_dynamic_schedules_leave_a_text_of_the_trained_length_as_it_is(carried, line):
    """Bit for bit what our attention computes without them, and to rounding what transformers does; no token more."""
    ids, model = random_ids(TRAINED + 1), carried.model
    bare = logits(model, ids[:, :-1])
    with rw.extended(model, "frequencies.rope", mode="attention"):
        ours, longer = logits(model, ids[:, :-1]), logits(model, ids)
    with rw.extended(model, line, target_len=8 * TRAINED):
        assert torch.equal(logits(model, ids[:, :-1]), ours)
        assert float((logits(model, ids) - longer)[:, -1].abs().max()) > 1e-3
    assert float((ours - bare).abs().max() / bare.abs().max()) < 1e-5
    with rw.extended(model, line.removeprefix("dynamic_"), target_len=8 * TRAINED):
        assert float((logits(model, ids[:, :-1]) - ours).abs().max()) > 1


@pytest.mark.parametrize(("line", "kept"), [("window:window=8", 0), ("sinks:window=8,n_sink=4", 4)])
def test_no_bit_of_far_text_comes_through_windows(carried, line, kept):
    """In each layer a token sees the seven before it: six layers reach 42 tokens back. Sinks stay visible."""
    ids, others, model = random_ids(200), random_ids(200, seed=1), carried.model
    layers = model.config.num_hidden_layers
    reach = 7 * layers
    beyond, edge = ids.clone(), ids.clone()
    beyond[:, kept : -1 - reach] = others[:, kept : -1 - reach]
    last_seen = slice(-1 - reach, -1 - reach + layers)  # which a window of one key less would not show
    edge[:, last_seen] = others[:, last_seen]
    assert not torch.equal(logits(model, beyond)[:, -1], logits(model, ids)[:, -1])
    with rw.extended(model, line):
        seen = logits(model, ids)[:, -1]
        assert torch.equal(logits(model, beyond)[:, -1], seen)
        assert not torch.equal(logits(model, edge)[:, -1], seen)


LONG = 8 * TRAINED
LADDER = ("long_reach", "self_extend+log_n", "self_extend")  # from the best on


@pytest.fixture(scope="module")
def far(carried):
    """Eight held-out texts of 4,096 tokens."""
    return Subject(model=carried.model, tokenizer=carried.tokenizer, corpus="stdlib", longest=LONG)


@pytest.fixture(scope="module")
def far_loss(far):
    """The loss of their last 256 tokens, under a line that is read once."""

    @cache
    def loss(line):
        with rw.extended(far.model, line, target_len=LONG), torch.no_grad():
            return fmean(token_losses(far.model, ids[None]).loss(TRAINED // 2) for ids in far.passages(8))

    return loss


@pytest.mark.nightly
def test_plain_rotation_breaks_at_eight_times_the_trained_length(far_loss):
    assert far_loss("frequencies.rope") > 4


@pytest.mark.nightly
@pytest.mark.parametrize(("better", "worse"), [*pairwise(LADDER), ("yarn", "ntk")])
def test_methods_without_training_keep_their_order(far_loss, better, worse):
    assert far_loss(better) < far_loss(worse)


@pytest.mark.nightly
@pytest.mark.parametrize(("line", "fewest", "most"), [("window", 0, 0), ("self_extend+log_n", 6, 7)])
def test_a_window_finds_none_of_the_passkeys_outside_it(far, line, fewest, most):
    """The eighth would be 256 tokens back, within the window."""
    task = Passkey(samples=8)
    with rw.extended(far.model, line, target_len=LONG):
        assert fewest <= sum(task.measure(far, LONG, sample)["right"] for sample in range(7)) <= most


@pytest.mark.parametrize("study", ["card", "demo"])
def test_the_figures_on_its_card_are_of_these_weights(carried, study):
    """A new model needs new figures: see tools/card_table.py and tools/demo_table.py."""
    kept = json.loads((RESULTS / study / f"{study}.json").read_text())
    assert kept["marks"]["weights"] == carried.marks["weights"]


def test_its_card_says_how_it_was_made():
    card = (DEFAULT / "README.md").read_text()
    assert re.search(r"ropewalk train pretrain", card)
    for word in ("tokens", "hours", "held-out", "limits"):
        assert word in card.lower()


def test_one_command_trains_it_anew():
    """`make carried`: both parts, with settings that their recipes take, one after the other."""
    root = RESULTS.parents[1]
    said = subprocess.run(
        ["make", "-n", "carried", "OUT=made", "BOOKS=books"], cwd=root, capture_output=True, text=True, check=True
    ).stdout.replace("\\\n", " ")
    lines = [shlex.split(line) for line in said.splitlines() if " train " in line]
    assert [line[2] for line in lines] == ["pretrain", "carry_on"]
    settings = []
    for line in lines:
        texts = dict(text.split("=", 1) for flag, text in pairwise(line) if flag == "--set")
        settings.append(listing.recipe(line[2]).read(texts))
    first, second = settings
    assert (first.shape.trained_len, second.length) == (TRAINED, TRAINED)
    assert second.model == "made/first/model"
    tokens = [one.plan.steps * one.plan.rows * TRAINED for one in settings]
    assert sum(tokens) == pytest.approx(32.0e6, rel=0.01)  # as the card says
    card = (DEFAULT / "README.md").read_text()
    assert "make carried OUT=FOLDER BOOKS=FOLDER" in card
    on_card = [
        shlex.split(line) for line in card.replace("\\\n", " ").splitlines() if line.startswith("    ropewalk train")
    ]
    values = [[word.partition("=") for word in words if "=" in word] for words in (*on_card, *lines)]
    paths = ("corpus", "model")
    written = [{name: value for name, _, value in one if name not in paths} for one in values]
    assert written[:2] == written[2:]
    refused = subprocess.run(["make", "-n", "carried"], cwd=root, capture_output=True, text=True, check=False)
    assert "carried needs OUT=FOLDER and BOOKS=FOLDER" in refused.stderr
