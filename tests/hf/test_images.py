"""Models that see images: tokens with several positions, image tokens that see each other, the text model alone."""

import contextlib

import pytest
import torch
import transformers
from torch.nn.functional import pad

from ropewalk import Conflict, DoesNotFit, Extension, InvalidValue, extend, extended, load, save, score, stream
from ropewalk.hf.attach.handle import handle_of
from ropewalk.hf.probe.probe import probe

from hf.kinds import AXES, WITH_IMAGES, an_image, seeing
from hf.traces import off

IDS = torch.randint(3, 80, (1, 100), generator=torch.Generator().manual_seed(4))
TYPES = torch.zeros_like(IDS)
TYPES[:, 10:30] = 1
CLOSE = 1e-3  # of the largest logit: float32, sums in another order
SEVERAL = [name for name, own in WITH_IMAGES.items() if "rope_parameters" in own["text_config"]]
OTHERS = ["rerope:window=8", "dynamic_yarn", "streaming:window=20,n_sink=2", "self_extend:window=8,group=4", "log_n"]


def read(model, given):
    with torch.no_grad():
        return model(**given, use_cache=False).logits


def text_model(model):
    return model.base_model.language_model


@torch.no_grad()
def test_images_in_a_model_whose_attention_is_ours_for_text_alone():
    model, given = seeing("llava"), an_image("llava")
    bare = model(**given).logits
    assert off(model(**{**given, "pixel_values": 0 * given["pixel_values"]}).logits, bare) > 0.01
    with extended(model, Extension(), mode="attention"):
        assert off(model(**given).logits, bare) < CLOSE
    with extended(model, "rerope:window=16"):
        got = [model.generate(**given, max_new_tokens=3, do_sample=False, use_cache=use) for use in (True, False)]
        assert torch.equal(*got)


@pytest.mark.parametrize("name", ["gemma3", "paligemma"])
def test_image_tokens_that_see_each_other_under_our_attention_equal_the_models_own(name):
    """Gemma 3 shows the tokens of an image to each other, PaliGemma those of the image and the prompt."""
    model = seeing(name)
    types = TYPES if name == "gemma3" else (torch.arange(100) >= 30).long()[None]
    together, apart = (
        {"input_ids": IDS, "token_type_ids": x} for x in (types, torch.full_like(TYPES, name != "gemma3"))
    )
    bare = read(model, together)
    assert off(read(model, apart), bare) > 0.01
    with extended(model, Extension(), mode="attention"):
        assert off(read(model, together), bare) < CLOSE
        assert off(read(model, apart), bare) > 0.01
    with extended(model, "pi:factor=4", mode="tables"):
        expected = read(model, together)
    with extended(model, "pi:factor=4", mode="attention"):
        assert off(read(model, together), expected) < CLOSE


@pytest.mark.sampled(cases=2)
@pytest.mark.parametrize("text", [*OTHERS, "dual_chunk:chunk=24,local=8"])
def test_image_tokens_that_see_each_other_are_read_on_through_a_cache(text):
    model, given = seeing("gemma3"), an_image("gemma3")
    with extended(model, text):
        if text.startswith("dual_chunk"):
            with pytest.raises(DoesNotFit, match="dual_chunk is not defined for later keys"):
                read(model, given)
            return
        whole, several = (
            model.generate(**given, max_new_tokens=6, do_sample=False, use_cache=use) for use in (False, True)
        )
    assert torch.equal(whole, several)


def test_a_padded_row_with_tokens_that_see_each_other_equals_that_row_alone():
    model = seeing("gemma3")
    for left in (True, False):
        sides = (7, 0) if left else (0, 7)
        mask = pad(torch.ones_like(IDS), sides)
        padded = {"input_ids": pad(IDS, sides), "token_type_ids": pad(TYPES, sides)}
        with extended(model, "rerope:window=8+log_n"):
            alone = read(model, {"input_ids": IDS, "token_type_ids": TYPES})
            got = read(model, {**padded, "attention_mask": mask})
            assert off(got[:, 7:] if left else got[:, :100], alone) < CLOSE


def test_images_in_a_cache_of_text_are_refused():
    model = seeing("gemma3")
    with torch.no_grad(), extended(model, "rerope:window=8"):
        cache = model(input_ids=IDS[:, :12], use_cache=True).past_key_values
        with pytest.raises(InvalidValue, match="this cache was begun for text, and now comes an image"):
            model(input_ids=IDS, token_type_ids=TYPES, past_key_values=cache)


@torch.no_grad()
def test_token_types_that_are_all_text_are_text():
    model = seeing("gemma3")
    given = {"input_ids": IDS, "token_type_ids": 0 * TYPES, "use_cache": False}
    bare = model(**given).logits
    with extended(model, Extension(), mode="attention"):
        assert off(model(**given).logits, bare) < CLOSE


@pytest.mark.parametrize("name", SEVERAL)
def test_the_probe_measures_which_position_rotates_each_pair(name):
    """Sections one after the other, or taking turns, by the config; the last turns belong to the first axis."""
    stated = WITH_IMAGES[name]["text_config"]["rope_parameters"]
    sections = stated["mrope_section"]
    expected = [axis for axis, count in enumerate(sections) for _ in range(count)]
    if stated.get("mrope_interleaved"):
        expected = [pair % 3 if pair < 3 * sections[pair % 3] else 0 for pair in range(sum(AXES["mrope_section"]))]
    assert {layer.axes for layer in probe(seeing(name))} == {tuple(expected)}


@pytest.mark.parametrize("name", SEVERAL)
def test_images_under_our_attention_equal_the_models_own(name):
    """Without an extension, and under a schedule in the model's own tables, which its own attention follows."""
    model, given = seeing(name), an_image(name)
    bare, text = read(model, given), read(model, {"input_ids": IDS})
    assert off(read(model, {**given, "pixel_values": 0 * given["pixel_values"]}), bare) > 0.01
    with extended(model, Extension(), mode="attention"):
        assert off(read(model, given), bare) < CLOSE
        assert off(read(model, {"input_ids": IDS}), text) < CLOSE
    with extended(model, "pi:factor=4", mode="tables"):
        expected = read(model, given)
    with extended(model, "pi:factor=4", mode="attention"):
        assert off(read(model, given), expected) < CLOSE
    assert off(expected, bare) > 0.01
    assert torch.equal(read(model, given), bare)


@pytest.mark.sampled
@pytest.mark.parametrize("text", OTHERS)
@pytest.mark.parametrize("name", SEVERAL)
def test_images_are_read_on_through_a_cache(name, text):
    model, given = seeing(name), an_image(name)
    with extended(model, text):
        whole, several = (
            model.generate(**given, max_new_tokens=6, do_sample=False, use_cache=use, return_dict_in_generate=True)
            for use in (False, True)
        )
    assert torch.equal(whole.sequences, several.sequences)
    assert whole.sequences.shape[1] == given["input_ids"].shape[1] + 6


@pytest.mark.parametrize("name", SEVERAL)
def test_a_padded_row_with_an_image_equals_that_row_alone(name):
    model, given = seeing(name), an_image(name)
    blank = torch.zeros(1, 7, dtype=torch.long)
    padded = {
        **given,
        "input_ids": torch.cat([blank, given["input_ids"]], 1),
        "mm_token_type_ids": torch.cat([blank, given["mm_token_type_ids"]], 1),
        "attention_mask": torch.cat([blank, torch.ones_like(given["input_ids"])], 1),
    }
    with extended(model, "rerope:window=8+log_n"):
        assert off(read(model, padded)[:, 7:], read(model, given)) < CLOSE


def test_gradients_flow_through_an_image():
    model, given = seeing("qwen3_vl"), an_image("qwen3_vl")
    grads = []
    for mode in ("tables", "attention"):
        with extended(model, "pi:factor=4", mode=mode):
            model.zero_grad()
            model(**given, use_cache=False).logits.square().mean().backward()
        grads.append(torch.cat([value.grad.flatten() for value in text_model(model).layers.parameters()]))
    assert off(*grads) < CLOSE


def test_what_is_not_defined_on_several_positions_is_refused():
    model, given = seeing("qwen2_5_vl"), an_image("qwen2_5_vl")
    for text, slot in (
        ("dual_chunk:chunk=16,local=4", "dual_chunk"),
        ("string:shift=10,local=4", "string"),
        ("xpos", "xpos"),
    ):
        with extended(model, text):
            read(model, {"input_ids": IDS})
            with pytest.raises(DoesNotFit, match=f"{slot} is not defined for tokens with several positions"):
                read(model, given)
    with extended(model, "pose:target_len=256"):
        model.train()
        with pytest.raises(DoesNotFit, match="draws one position per token, and tokens of images have several"):
            read(model, given)


def test_an_image_that_comes_after_text_in_a_cache():
    """A cache that keeps all keys reads it; one that keeps what the text needs is refused."""
    model, given = seeing("qwen2_5_vl"), an_image("qwen2_5_vl")
    before = {"input_ids": IDS[:, :12], "use_cache": True}
    with torch.no_grad(), extended(model, "rerope:window=8"):
        cache = model(**before).past_key_values
        with pytest.raises(InvalidValue, match="this cache was begun for text, and now comes an image"):
            model(**given, past_key_values=cache)


@pytest.mark.parametrize("name", [*SEVERAL, "llava"])
def test_the_language_model_inside_is_extended_alike(name):
    model, given = seeing(name), an_image(name)
    bare = read(model, given)
    with extended(model, "rerope:window=8"):
        expected = read(model, given)
    handle = extend(text_model(model), "rerope:window=8")
    assert handle_of(model) is handle
    assert torch.equal(read(model, given), expected)
    with pytest.raises(Conflict, match="already extended"):
        extend(model, "yarn:factor=4")
    handle.remove()
    assert torch.equal(read(model, given), bare)
    whole = extend(model, "yarn:factor=4")
    assert handle_of(text_model(model)) is whole
    with pytest.raises(Conflict, match="already extended"):
        extend(text_model(model), "rerope:window=8")
    whole.remove()


def test_the_part_that_sees_is_left_alone():
    model = seeing("llava")
    tower = model.base_model.vision_tower
    before = tower.config._attn_implementation
    with extended(model, "rerope:window=8"):
        assert tower.config._attn_implementation == before
    with pytest.raises(DoesNotFit, match="does not read a text by itself"):
        extend(tower, "yarn:factor=4")


@pytest.mark.sampled(cases=2)
@pytest.mark.parametrize("name", [*SEVERAL, "llava", "gemma3"])
@pytest.mark.parametrize("text", ["pi:factor=4", "rerope:window=8"])
def test_a_model_that_sees_images_is_saved_and_loaded_by_its_own_class(name, text, tmp_path):
    model, given = seeing(name), an_image(name)
    with extended(model, text):
        how = save(model, tmp_path / "model")
        again = load(tmp_path / "model", attn_implementation="eager")
        assert type(again) is type(model)
        assert off(read(again, given), read(model, given)) < CLOSE
        if text == "pi:factor=4":
            plain = getattr(transformers, how.split(".")[1]).from_pretrained(
                tmp_path / "model", attn_implementation="eager"
            )
            assert off(read(plain, given), read(model, given)) < CLOSE


@pytest.mark.sampled(cases=2)
@pytest.mark.parametrize("name", [*SEVERAL, "gemma3", "llava"])
@pytest.mark.parametrize("more", [[5, 6, 7], [5]])
def test_a_chat_goes_on_after_an_image_in_one_cache(name, more):
    """The second turn brings one position per token; the positions of the image are remembered."""
    model, given = seeing(name), an_image(name)
    greedy = {"max_new_tokens": 4, "do_sample": False, "return_dict_in_generate": True}
    for text in ("rerope:window=8", "log_n"):
        with extended(model, text):
            first = model.generate(**given, **greedy)
            ids = torch.cat([first.sequences, torch.tensor([more])], 1)
            with torch.no_grad():
                model.generate(input_ids=ids, past_key_values=first.past_key_values, **greedy)
    with extended(model, "pi:factor=4", mode="tables"):
        expected = second_turn(model, given, more)
    with extended(model, "pi:factor=4", mode="attention"):
        assert off(second_turn(model, given, more), expected) < CLOSE


def second_turn(model, given, more):
    """The logits of the second turn's first answer."""
    greedy = {"do_sample": False, "return_dict_in_generate": True, "output_logits": True}
    first = model.generate(**given, max_new_tokens=4, min_new_tokens=4, **greedy)
    ids = torch.cat([given["input_ids"], torch.full((1, 4), 9), torch.tensor([more])], 1)
    answer = model.generate(input_ids=ids, past_key_values=first.past_key_values, max_new_tokens=1, **greedy)
    return answer.logits[0]


@pytest.mark.sampled
@pytest.mark.parametrize("name", SEVERAL)
@pytest.mark.parametrize("text", [None, "pi:factor=4", "rerope:window=8"])
def test_text_is_scored_and_written_alike_before_and_after_an_image(name, text):
    """transformers would count the positions on from the image."""
    model, given = seeing(name), an_image(name)
    with extended(model, text) if text else contextlib.nullcontext():
        before, written = score(model, IDS, piece=32), [int(x) for x in stream(model, IDS, max_new_tokens=4)]
        read(model, given)
        assert off(score(model, IDS, piece=32), before) < CLOSE
        assert [int(x) for x in stream(model, IDS, max_new_tokens=4)] == written
        assert off(score(model, IDS), before) < CLOSE


@pytest.mark.nightly
def test_a_compiled_graph_says_why_it_reads_no_image():
    model, given = seeing("qwen3_vl"), an_image("qwen3_vl")
    refused = pytest.raises(InvalidValue, match="not read inside a compiled graph")
    with torch.no_grad(), extended(model, "rerope:window=8"), refused:
        torch.compile(model, backend="eager")(**given)
