"""What is said of a model, against numbers worked by hand."""

import html
import json
import re
from dataclasses import replace

import pytest
import torch

from ropewalk import DoesNotFit, InvalidValue, RopewalkError, convert, extended, inspect, parse
from ropewalk.engines.export import export
from ropewalk.extension import presets
from ropewalk.extension.presets import TRAINED, TUNED, training
from ropewalk.hf.use.inspect import _size, sizes
from ropewalk.hf.use.long_text import stream

from hf.architectures import small
from hf.kinds import hiding, mean_norms
from hf.models import tiny
from nightly import first_of_each


def test_methods_stand_by_what_they_need_and_by_the_size_of_their_cache():
    _, _, groups = str(inspect("default", target_len=4096)).partition("no training, by size of the cache:\n")
    at_once, _, later = groups.partition("short fine-tuning, by size of the cache:\n")
    rows = [line.strip().partition("  ")[::2] for line in at_once.splitlines() if "iB" in line]
    assert rows[:2] == [("3.0 MiB", "window, bca, streaming"), ("3.1 MiB", "lm_infinite")]
    assert rows == sorted(rows, key=lambda row: float(row[0].split()[0]))
    assert later.startswith("     1.9 MiB  duo_attention\n")  # its gates are learned


def test_a_model_by_hand():
    """32 tokens, 8 pairs of base 10,000: pair i turns 32 / (2 pi 10^(i/2)) times."""
    seen = inspect(tiny("llama"), target_len=256)
    assert (seen.facts.trained_len, seen.facts.heads, seen.facts.groups) == (32, 4, 2)
    assert seen.turns[:3] == pytest.approx([5.09296, 1.61054, 0.509296], rel=1e-5)
    assert seen.cache_bytes() == 4 * 256 * 2 * (16 + 16) * 4
    assert seen.cache_bytes(parse("streaming:window=10,n_sink=2")) == 4 * 12 * 2 * 32 * 4
    assert "yarn" in seen.applying
    assert seen.under_trained == (2, 3, 4, 5, 6, 7)
    assert "6 of 8 pairs (2 to 7) never complete a full turn in 32" in str(seen)
    assert "     2           0.509            4.07   under-trained" in str(seen).splitlines()


def test_windows_bound_the_cache_and_nope_layers_are_counted():
    seen = inspect(tiny("cohere2"), target_len=256)
    assert seen.cache_bytes() == (3 * 12 + 256) * 2 * 32 * 4
    assert "3 layers have a window (" in str(seen)
    assert "1 layer does not rotate" in str(seen)


@pytest.mark.sampled(cases=2)
@pytest.mark.parametrize("name", ["llama", "gpt_neox", "cohere2", "gemma3_text"])
def test_a_cache_that_does_not_grow_needs_no_word(name):
    """Ropewalk's attention holds what the model's own cache does."""
    assert "Ropewalk's cache" not in str(inspect(tiny(name), target_len=256))


def test_what_attention_of_ours_would_cost_is_not_said_where_it_cannot_be():
    """Four heads of 16 + 16 numbers, against 72 latent ones and a key of 8 that rotates."""
    seen = inspect(tiny("deepseek_v3", kv_lora_rank=72), target_len=256)
    assert "Ropewalk's cache" in str(seen)
    assert "1.6 times as much" in str(seen)
    assert "Ropewalk's cache" not in str(replace(seen, carried="its attention cannot be replaced"))


def test_why_a_method_does_not_apply():
    seen = inspect(tiny("llama"), target_len=256)
    assert seen.refused
    assert all("must be" in reason or "the model has no" in reason for reason in seen.refused.values())
    assert not set(seen.refused) & set(seen.applying)
    before, heading, after = str(seen).partition("do not apply:\n")
    assert heading
    for name in seen.refused:
        assert not re.search(rf"\b{name}\b", before)
        assert name in after


@pytest.mark.nightly
def test_what_the_model_adds_to_the_softmax_is_said():
    assert "attention logits are capped at 5\n" in str(inspect(tiny("gemma2")))
    assert "a learned sink per head" in str(inspect(tiny("gpt_oss")))
    for word in ("capped", "softmax"):
        assert word not in str(inspect(tiny("llama")))


def test_what_attention_cannot_carry_is_said():
    seen = inspect(mean_norms(tiny("hunyuan_v1_dense")))
    assert "a norm after the rotation, and it is no RMS norm" in " ".join(str(seen).split())
    assert inspect(tiny("llama")).carried == inspect(tiny("llama")).tabled == ""


def test_which_way_static_schedules_go():
    assert "share" in inspect(tiny("gemma2")).tabled
    seen = inspect(mean_norms(tiny("hunyuan_v1_dense")))
    assert "norm" in seen.carried
    assert seen.tabled == ""
    assert "the model's attention is unchanged" in str(seen)


def test_a_folder_and_an_extended_model(tmp_path):
    model = tiny("llama", num_hidden_layers=1)
    model.save_pretrained(tmp_path / "model")
    bare = inspect(model)
    with extended(model, "yarn:factor=4"):
        assert inspect(model) == bare
    assert inspect(tmp_path / "model").turns == bare.turns


@pytest.mark.parametrize("length", [0, -1])
def test_a_model_that_does_not_say_how_long_it_was_trained(length):
    model = tiny("llama", num_hidden_layers=1)
    model.config.max_position_embeddings = length
    with pytest.raises(DoesNotFit, match="max_position_embeddings"):
        inspect(model)


def test_the_first_layer_that_turns_speaks_for_all():
    plain, seen = (inspect(tiny("smollm3", no_rope_layers=layers)) for layers in ([1, 1, 1, 1], [0, 1, 1, 0]))
    assert seen.turns == plain.turns
    assert seen.facts == plain.facts


@pytest.mark.parametrize(
    ("count", "words"),
    [
        *((0, "0.0 B"), (1, "1.0 B"), (1023, "1,023.0 B"), (1024, "1.0 KiB"), (1536, "1.5 KiB")),
        *((1024**2 - 1, "1,024.0 KiB"), (1024**2, "1.0 MiB"), (3 * 1024**3, "3.0 GiB"), (1024**5, "1,024.0 TiB")),
    ],
)
def test_bytes_are_said_in_the_unit_that_leaves_few_digits(count, words):
    assert _size(count) == words


def test_a_target_within_the_trained_length_meets_nothing_new():
    seen = inspect(tiny("llama", num_hidden_layers=1), target_len=16)
    assert seen.under_trained == ()
    assert min(seen.turns) < 1
    assert "completes a full turn" not in str(seen)
    assert "No pair meets an angle in this text that it does not meet in training." in str(seen)
    with pytest.raises(InvalidValue, match="target_len"):
        inspect(tiny("llama", num_hidden_layers=1), target_len=0)


def refusal(model, advice):
    """What `extend` and `convert` themselves say."""
    try:
        if advice.by == "convert":
            convert(model, parse(advice.name, target_len=256).surgery[0])
        else:
            with extended(model, advice.name, target_len=256):
                pass
    except RopewalkError as reason:
        return str(reason)
    return ""


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["llama", "mistral", "gemma2", "hunyuan_v1_dense"])
def test_what_is_said_to_apply_is_taken_and_nothing_else(name):
    assert_promises_kept(tiny(name, num_hidden_layers=3))


@pytest.mark.nightly
@pytest.mark.parametrize(
    "name", first_of_each(["qwen3_next", "doge", "diffllama", "deepseek_v32", "gemma3n_text", "lfm2_moe"])
)
def test_so_it_is_on_models_of_every_kind(name):
    """Masks of their own, attention twice, top-k keys, shared keys, layers that are no attention."""
    assert_promises_kept(small(name))


@pytest.mark.nightly
def test_a_way_by_which_a_model_does_not_stay_itself_is_not_promised():
    """Its own attention hides what 24 tokens do not show: it goes by tables alone."""
    model = hiding(tiny("llama", num_hidden_layers=2, keep_window=20))
    seen = inspect(model, target_len=256)
    assert "an empty extension changes the logits" in seen.carried
    assert "yarn" in seen.applying
    assert "rerope" not in seen.applying
    assert_promises_kept(model)


def assert_promises_kept(model):
    """`extend` takes what applies, and says the same of what does not."""
    said = {each: each.why_not for each in inspect(model, target_len=256).methods if each.by != "nbce_generate"}
    assert said == {each: refusal(model, each) for each in said}


@pytest.mark.sampled(cases=2)
@pytest.mark.parametrize("name", ["streaming", "lm_infinite", "rerope", "dual_chunk", "dynamic_yarn", "hwfa", "yarn"])
def test_the_cache_of_a_method_is_what_its_memory_holds(name, monkeypatch):
    """mistral keeps its window of 12 in every layer, llama has none. Without the room that memories make in advance."""
    monkeypatch.setattr("ropewalk.attention.cache.buffers.LEAST_ROOM", 1)
    monkeypatch.setattr("ropewalk.attention.cache.buffers.GROWTH", 1)
    for model in (tiny("llama", num_hidden_layers=3), tiny("mistral", num_hidden_layers=2)):
        seen = inspect(model, target_len=100)
        caches = []
        watch = model.model.register_forward_pre_hook(
            lambda _, __, given, caches=caches: caches.append(given["past_key_values"]), with_kwargs=True
        )
        with extended(model, name, target_len=100, mode="attention"):
            list(stream(model, torch.arange(100)[None], max_new_tokens=1))
        watch.remove()
        expected = sum(layer.memory.nbytes for layer in caches[-1].layers)
        assert {each.name: each.cache_bytes for each in seen.methods}[name] == expected


def test_needs_are_stated_of_presets_that_exist():
    names = [preset.__name__ for preset in presets.ALL]
    assert len({*TUNED, *TRAINED}) == len(TUNED) + len(TRAINED)
    assert {*TUNED, *TRAINED} <= set(names)
    learned = [each.__name__ for each in presets.ALL if each.__module__ == training.__name__]
    assert set(learned) <= {*TUNED, *TRAINED}
    seen = {each.name: each.needs for each in inspect(tiny("llama", num_hidden_layers=2), target_len=64).methods}
    assert list(seen) == names
    assert (seen["yarn"], seen["pi"], seen["alibi"]) == ("nothing", "tuning", "training")


@pytest.mark.parametrize("name", ["llama", "gemma2", "cohere2", "hunyuan_v1_dense"])
def test_it_is_read_on_80_columns_and_by_machines(name):
    seen = inspect(tiny(name), target_len=1 << 20)
    assert max(map(len, str(seen).splitlines())) <= 80
    assert "`ropewalk show NAME` explains one of them" in str(seen)
    read = json.loads(json.dumps(seen.to_json()))
    assert read["trained_len"] == 32
    assert read["turns_at_target"] == pytest.approx([turns * 2**15 for turns in seen.turns])
    for each in read["methods"]:
        assert each["applies"] == (each["name"] in seen.applying)
        assert bool(each["why_not"]) != each["applies"]
        assert (each["cache_bytes"] > 0) == each["applies"]


def test_in_a_notebook_it_is_one_line_that_opens():
    inspected = inspect(tiny("llama", num_hidden_layers=1))
    assert len(repr(inspected)) < 160
    shown = inspected._repr_html_()
    assert shown.startswith("<details><summary>Inspection: trained on ")
    assert html.unescape(shown.split("<pre>")[1].removesuffix("</pre></details>")) == str(inspected)


def test_sizes_are_those_of_an_inspection_without_its_trials():
    model = tiny("gemma3_text")
    whole, part = inspect(model, target_len=256), sizes(model, target_len=256)
    assert part.methods == ()
    assert part.facts == whole.facts
    assert part.cache_bytes() == whole.cache_bytes()
    extension = parse("streaming:window=8")
    assert part.cache_bytes(extension) == whole.cache_bytes(extension)
    assert part.idle(extension, lift_windows=False) == whole.idle(extension, lift_windows=False)


def test_an_export_is_not_taken_for_a_model_trained_on_its_length(tmp_path):
    model = tiny("llama", num_hidden_layers=1)
    trained = inspect(model).facts.trained_len
    with extended(model, "yarn", target_len=4 * trained):
        export(model, tmp_path / "exported", target="transformers")
    seen = str(inspect(tmp_path / "exported"))
    assert f"trained on {trained:,}. If it was not trained on more since, inspect it" in " ".join(seen.split())
    assert f"--trained-len {trained}" in " ".join(seen.split())
    assert "exported" not in str(inspect(tmp_path / "exported", trained_len=trained))
    assert "exported" not in str(inspect(model))
