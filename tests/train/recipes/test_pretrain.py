"""Pretraining: under every kind of extension, and what was learned comes back."""

import json

import pytest
import torch
from torch.nn.functional import cross_entropy

import ropewalk as rw
from ropewalk.errors import DoesNotFit, InvalidValue
from ropewalk.extension.extension import Extension
from ropewalk.hf.attach.handle import handle_of
from ropewalk.measure.metrics.losses import token_losses
from ropewalk.methods.reach import Causal, LeakyReRoPE, ReRoPE, Window
from ropewalk.train.data.packs import Passages
from ropewalk.train.data.puzzles import PuzzleShares
from ropewalk.train.recipes.pretrain import PretrainSettings, extension_for, pretrain, without_rerope
from ropewalk.train.small_models import ModelShape, new_small_model
from ropewalk.train.train import TrainingPlan

from train.texts import folder_of, tokens

SMALL = {"vocabulary": 300, "width": 32, "inner": 48, "layers": 3, "heads": 2, "trained_len": 32}
QUIET = {"rows": 4, "progress": False, "log_every": 1, "learning_rate": 1e-2}
IDS = torch.randint(5, 290, (1, 60), generator=torch.Generator().manual_seed(1))


def run(path, extension="", steps=4, packed=True, name="run", **shape):
    corpus = folder_of(path / "texts", count=12)
    settings = PretrainSettings(
        plan=TrainingPlan(steps=steps, **QUIET),
        shape=ModelShape(**SMALL, **shape),
        extension=extension,
        corpus=corpus,
        puzzles=PuzzleShares(repeats=0.3),
        packed=packed,
    )
    return pretrain(path / name, settings)


def logits(model):
    with torch.no_grad():
        return model.eval()(input_ids=IDS, use_cache=False).logits


EXTENSIONS = [
    "",
    "alibi",
    "kerple",
    "bam",
    "rope_id",
    "sandwich",
    "xpos+bca",
    "window:window=8",
    "hwfa",
    "hwfa_rerope:window=20",
    "nope",
]
EXTENSIONS += ["log_n:clipped=false", "qk_bias", "randomized:limit=128", "fire+scales.head_scale"]
EXTENSIONS += ["ssmax", "swan:every=3"]


@pytest.mark.sampled(cases=1)
@pytest.mark.parametrize("extension", EXTENSIONS)
def test_what_is_trained_comes_back(tmp_path, extension):
    model = run(tmp_path, extension, packed="randomized" not in extension)
    again = rw.load(tmp_path / "run" / "model")
    assert logits(again).shape == (1, 60, 300)
    torch.testing.assert_close(logits(again), logits(model), rtol=1e-4, atol=1e-4)
    assert sorted(path.name for path in (tmp_path / "run").iterdir())[-3:] == ["model", "plan.json", "tokenizer"]


@pytest.mark.nightly
@pytest.mark.parametrize("extension", ["hwfa_rerope:window=20", "rerope:window=20+ssmax"])
def test_a_model_runs_under_what_it_was_not_trained_under(tmp_path, extension):
    model = run(tmp_path, extension)
    for one in (model, rw.load(tmp_path / "run" / "model")):
        assert handle_of(one).extension == rw.parse(extension, trained_len=32, layers=3)


@pytest.mark.nightly
def test_biases_learn_and_are_not_pulled_towards_0(tmp_path):
    with torch.random.fork_rng():
        model = run(tmp_path, "kerple", steps=6)
    names = [name for name, _ in model.named_parameters() if "kerple" in name]
    assert len(names) == 3 * 2
    begun = rw.extend(new_small_model(ModelShape(**SMALL)), "kerple").model.state_dict()
    assert all(not torch.equal(model.state_dict()[name], begun[name]) for name in names)


@pytest.mark.nightly
def test_only_biases_of_queries_and_keys_learn(tmp_path):
    state = run(tmp_path, "qk_bias").state_dict()
    biases = {name: value for name, value in state.items() if name.endswith("bias")}
    assert {name.split(".")[-2] for name in biases} == {"q_proj", "k_proj", "v_proj", "o_proj"}
    for name, value in biases.items():
        assert bool(value.any()) == (name.split(".")[-2] in ("q_proj", "k_proj")), name


@pytest.mark.nightly
def test_a_table_of_learned_places_under_random_numbers(tmp_path):
    model = run(tmp_path, "randomized:limit=128", steps=20, packed=False, places="learned")
    table = model.transformer.wpe.weight.detach()
    before = new_small_model(ModelShape(**SMALL, places="learned"), numbers=128).transformer.wpe.weight
    moved = ((table - before).norm(dim=1) > 0.05).float()
    assert table.shape == (128, 32)
    assert moved[32:].mean() > 0.9  # places beyond the trained length have been trained as well
    again = rw.load(tmp_path / "run" / "model")
    numbering = extension_for(ModelShape(**SMALL, places="learned"), "randomized:limit=128").positions
    stretched = token_losses(again, IDS, numbering=numbering)
    with torch.no_grad():
        inputs = {"position_ids": torch.arange(60)[None] * 128 // 60, "attention_mask": torch.ones_like(IDS)}
        expected = cross_entropy(again(input_ids=IDS, **inputs).logits[0, :-1], IDS[0, 1:])
    assert stretched.loss() == pytest.approx(float(expected), abs=1e-4)


@pytest.mark.nightly
def test_key_norm(tmp_path):
    run(tmp_path, key_norm=True)
    config = json.loads((tmp_path / "run" / "model" / "config.json").read_text())
    assert config["model_type"] == "qwen3"


@pytest.mark.nightly
def test_the_same_call_changes_nothing_and_a_longer_one_replaces_the_model(tmp_path):
    first = logits(run(tmp_path, "kerple", steps=3))
    run(tmp_path, "kerple", steps=3)
    assert torch.equal(logits(rw.load(tmp_path / "run" / "model")), first)
    assert steps_logged(tmp_path / "run") == [1, 2, 3]
    longer = logits(run(tmp_path, "kerple", steps=6))
    assert torch.equal(logits(rw.load(tmp_path / "run" / "model")), longer)
    assert not torch.equal(longer, first)
    assert steps_logged(tmp_path / "run") == [1, 2, 3, 4, 5, 6]


def steps_logged(place):
    return [row["step"] for row in json.loads((place / "losses.json").read_text())["rows"]]


def test_rerope_is_for_running_and_not_for_training():
    wanted = extension_for(ModelShape(**SMALL), "hwfa_rerope:window=20")
    trained = without_rerope(wanted)
    assert isinstance(trained.reach, Window)
    assert not any(isinstance(layer.reach, ReRoPE) for _, layer in trained.layer_items)
    assert any(isinstance(layer.reach, ReRoPE) for _, layer in wanted.layer_items)
    for reach in (ReRoPE(window=8), LeakyReRoPE(window=8, leak=4)):
        assert without_rerope(Extension(reach=reach)).reach == Causal()


def test_passages_hold_one_text_each(tmp_path):
    corpus = tokens(tmp_path, count=5)
    cut = Passages(corpus, 30)
    assert len(cut) == sum(length // 30 for length in corpus.lengths.tolist())
    passages = [cut[n].tolist() for n in range(len(cut))]
    expected = [corpus[n][30 * k : 30 * k + 30].tolist() for n in range(5) for k in range(len(corpus[n]) // 30)]
    assert passages == expected
    with pytest.raises(DoesNotFit, match="a document of 100000 tokens"):
        Passages(corpus, 100_000)


def test_what_is_refused(tmp_path):
    with pytest.raises(InvalidValue, match="rotary with key_norm"):
        ModelShape(**SMALL, places="learned", key_norm=True)
    with pytest.raises(InvalidValue, match=r"heads must be such that width 30 over heads is even"):
        ModelShape(**{**SMALL, "width": 30})
    with pytest.raises(DoesNotFit, match="positions and nothing else"):
        run(tmp_path, "alibi", places="learned")
