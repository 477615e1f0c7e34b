"""DuoAttention's gates: what they mix, what they are judged by, and which heads keep all keys in the end."""

import json
from random import Random

import numpy as np
import pytest
import torch

import ropewalk as rw
from ropewalk import DoesNotFit, Extension, InvalidValue, extended, parse
from ropewalk.attention.scoped import scoped
from ropewalk.hf.runtime.layer import MIXTURES, HeadMixture
from ropewalk.methods.reach import Sinks
from ropewalk.models import path_of
from ropewalk.train.recipes import retrieval_heads as recipe
from ropewalk.train.recipes.retrieval_heads import AskedText, RetrievalHeadsSettings, ask_in, distance, retrieval_heads
from ropewalk.train.train import TrainingPlan

from hf.models import tiny
from hf.traces import logits

IDS = torch.randint(3, 97, (1, 40), generator=torch.Generator().manual_seed(0))
NEAR = "sinks:window=6,n_sink=2,renumber=false"
SETTINGS = {"model": "default", "window": 6, "n_sink": 2}


def settings(**values):
    return RetrievalHeadsSettings(plan=TrainingPlan(steps=1), **{**SETTINGS, **values})


def gated(handle, **values):
    return recipe._gated(handle, settings(**values))


def test_a_gate_mixes_a_head_over_all_keys_with_the_same_head_over_few():
    """In a model of one layer, by plain torch: the layer's output is linear in what its heads give."""
    model = tiny("llama", num_hidden_layers=1)
    heads = {}

    def keep(name):
        def hook(_, args):
            heads[name] = args[0].detach()

        return model.model.layers[0].self_attn.o_proj.register_forward_pre_hook(hook)

    share = torch.tensor([0.25, 0.25, 1.0, 1.0])
    with extended(model, Extension(), mode="attention"):
        whole = keep("whole")
        logits(model, IDS)
        whole.remove()
        mixed = keep("mixed")
        with scoped(MIXTURES, {0: HeadMixture(parse(NEAR), share)}):
            logits(model, IDS)
        mixed.remove()
    with extended(model, NEAR):
        few = keep("few")
        logits(model, IDS)
        few.remove()
    size = model.config.head_dim
    for head, part in enumerate(share.tolist()):
        own = slice(head * size, (head + 1) * size)
        expected = part * heads["whole"][..., own] + (1 - part) * heads["few"][..., own]
        torch.testing.assert_close(heads["mixed"][..., own], expected, rtol=1e-5, atol=1e-6)
    assert not torch.allclose(heads["whole"], heads["few"], atol=1e-3)


def test_the_distance_is_that_of_hidden_states_where_answers_are_predicted():
    model = tiny("llama", num_hidden_layers=2)
    text = AskedText(IDS, [20, 31])

    def hidden():
        with torch.no_grad():
            return model.model(input_ids=IDS, use_cache=False).last_hidden_state[0, [20, 31]]

    with extended(model, Extension(), mode="attention") as handle:
        whole, known = hidden(), gated(handle)
        opened = distance(model, known, torch.ones(2, 2), text).detach()
        closed = distance(model, known, torch.zeros(2, 2), text).detach()
    with extended(model, NEAR):
        expected = (hidden() - whole).square().mean()
    assert opened.item() == 0
    assert closed.item() == pytest.approx(expected.item(), rel=1e-4)
    assert closed.item() > 1e-4


def test_heads_of_the_largest_gates_retrieve():
    known = recipe.Gated((0, 2), 3, 2, Extension())  # the layer between has a window of the model's own
    gates = torch.tensor([[0.1, 0.9], [0.8, 0.2]])
    assert recipe.strongest(gates, known, 0.5) == (1, 4)
    assert recipe.strongest(gates, known, 0.01) == (1,)  # one head at least


def test_numbers_are_asked_for_at_the_end_and_answered_by_what_the_text_says():
    tokenizer = rw.hf.checkpoint.fetch.fetch_tokenizer(path_of("default"))
    plain = np.array([n % 200 + 20 for n in range(400)], dtype="int32")
    text = ask_in([plain], tokenizer, 400, 3, Random(3))
    ids = text.ids_1n[0].tolist()
    answers = tokenizer.decode([ids[place + 1] for place in text.before_answers])
    whole = tokenizer.decode(ids)
    numbers = [part.split(".")[0] for part in whole.split(" is ")[1:4]]
    assert len(numbers) == 3
    assert all(number.strip() in answers for number in numbers)
    lengths = [ask_in([plain], tokenizer, 400, 1, Random(seed)).ids_1n.shape[1] for seed in range(8)]
    assert len(set(lengths)) > 4  # drawn,
    assert min(lengths) < 300  # and not all of the text
    with pytest.raises(InvalidValue, match="length must be enough tokens to hide a number in, got 8; state more"):
        ask_in([plain[:8]], tokenizer, 8, 3, Random(0))


@pytest.mark.nightly
def test_a_run_that_is_stopped_goes_on_as_if_it_had_not_been(tmp_path, monkeypatch):
    plan = {"progress": False, "learning_rate": 0.2, "rows": 1, "save_every": 2}
    small = {**SETTINGS, "length": 128, "numbers": 2, "characters": 300_000, "window": 16}
    model = tmp_path / "model"
    rw.load(path_of("default")).save_pretrained(model)
    rw.hf.checkpoint.fetch.fetch_tokenizer(path_of("default")).save_pretrained(model)
    small["model"] = str(model)

    def run(folder, steps):
        result = retrieval_heads(folder, RetrievalHeadsSettings(plan=TrainingPlan(steps=steps, **plan), **small))
        return result, json.loads((folder / "gates.json").read_text())["gates"]

    result, whole = run(tmp_path / "whole", 4)
    kept = recipe._save
    monkeypatch.setattr(recipe, "_save", lambda *args: (kept(*args), (_ for _ in ()).throw(KeyboardInterrupt))[0])
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "stopped", 4)
    monkeypatch.setattr(recipe, "_save", kept)
    _, resumed = run(tmp_path / "stopped", 4)
    assert resumed == whole
    assert 0 <= min(map(min, whole)) < max(map(max, whole)) <= 1
    found = rw.parse(str(result))
    assert isinstance(found.reach, Sinks)
    loaded = rw.load(model)
    line = json.loads((tmp_path / "whole" / "gates.json").read_text())["line"]
    layers, heads = loaded.config.num_hidden_layers, loaded.config.num_key_value_heads
    assert rw.parse(line, layers=layers, key_heads=heads, trained_len=512) == found
    assert sum(len(part.head_items) for _, part in found.layer_items) == round(layers * heads / 2)


def test_a_model_with_windows_everywhere_is_refused():
    model = tiny("mistral", sliding_window=8)
    with (
        extended(model, Extension(), mode="attention") as handle,
        pytest.raises(DoesNotFit, match="see the whole text"),
    ):
        gated(handle)
