"""What an extended model's instance does of its own: writing with an assistant's help, and saving."""

import pytest
import torch
from transformers import AutoModelForCausalLM, ContinuousBatchingConfig, DynamicCache, GenerationConfig

from ropewalk import DoesNotFit, InvalidValue, extend, extended, load
from ropewalk.hf.attach.saving import REJECTABLE_TOKENS

from hf.models import tiny
from hf.traces import logits, trace
from nightly import first_of_each

pytestmark = pytest.mark.nightly

FORGETFUL = ["window:window=9", "rerope:window=8+log_n", "streaming:window=10,n_sink=2", "dynamic_yarn+window:window=9"]
# Repeats itself, so that looking up in the prompt proposes something, right at times and wrong at others.
IDS = torch.tensor([[5, 6, 7, 8, 9, 10, 11, 12, 5, 6, 7, 20, 21, 22, 9, 10, 30, 31, 32, 5, 6] * 3])
GIVEN = {"do_sample": False, "eos_token_id": None, "max_new_tokens": 40}
HELP = {
    "an assistant": lambda: {"assistant_model": tiny("llama", num_hidden_layers=1)},
    "the prompt": lambda: {"prompt_lookup_num_tokens": 5},
    "its own first layer": lambda: {"assistant_early_exit": 1},
}


@pytest.fixture
def taken_back(monkeypatch):
    """How many tokens each cropping of a cache took back."""
    counts, own = [], DynamicCache.crop

    def crop(cache, tokens):
        counts.append(-tokens)
        own(cache, tokens)

    monkeypatch.setattr(DynamicCache, "crop", crop)
    return counts


@pytest.mark.parametrize("text", FORGETFUL)
@pytest.mark.parametrize("kind", HELP)
def test_help_changes_no_token(llama, text, kind, taken_back):
    with extended(llama, text), torch.no_grad():
        expected = llama.generate(IDS, **GIVEN, use_cache=False)
        got = llama.generate(IDS, **GIVEN, **HELP[kind]())
    assert got.tolist() == expected.tolist()
    assert max(taken_back) > 0


@pytest.mark.parametrize("text", FORGETFUL)
def test_an_assistant_may_be_extended_too(llama, text, taken_back):
    """One that is right at first and wrong in the end: what it proposed in single steps is taken back from it."""
    assistant = tiny("llama", num_hidden_layers=2)
    assistant.generation_config.assistant_confidence_threshold = 0.0  # it goes on where it is not sure
    noise = torch.randn(assistant.lm_head.weight.shape, generator=torch.Generator().manual_seed(1))
    assistant.lm_head.weight.data.add_(0.3 * noise)
    with extended(llama, text), extended(assistant, text), torch.no_grad():
        expected = llama.generate(IDS, **GIVEN, use_cache=False)
        got = llama.generate(IDS, **GIVEN, assistant_model=assistant)
    assert got.tolist() == expected.tolist()
    assert len(set(taken_back)) > 2


@pytest.mark.parametrize("name", ["mistral", "gemma3_text"])
def test_windows_of_the_models_own_with_help(name, taken_back):
    model = tiny(name)
    with extended(model, "dynamic_yarn"), torch.no_grad():
        expected = model.generate(IDS, **GIVEN, use_cache=False)
        assert model.generate(IDS, **GIVEN, prompt_lookup_num_tokens=5).tolist() == expected.tolist()
    assert max(taken_back) > 0


def test_memory_stays_constant_with_help(llama):
    with extended(llama, "streaming:window=10,n_sink=2"), torch.no_grad():
        sizes = set()
        for count in (10, 200):
            cache = DynamicCache()
            llama.generate(IDS, **{**GIVEN, "max_new_tokens": count}, prompt_lookup_num_tokens=5, past_key_values=cache)
            sizes.add(sum(layer.memory.nbytes for layer in cache.layers))
    # Two layers; keys and values; two heads of 16 numbers of 4 bytes.
    assert sizes == {2 * 2 * (10 + REJECTABLE_TOKENS + 2) * 2 * 16 * 4}


def test_room_is_made_for_as_many_as_are_stated(llama):
    many = tiny("llama", num_hidden_layers=1)
    many.generation_config.num_assistant_tokens = REJECTABLE_TOKENS
    with extended(llama, "window:window=9"), torch.no_grad():
        cache = DynamicCache()
        llama.generate(IDS, **GIVEN, assistant_model=many, past_key_values=cache)
        assert cache.layers[0].memory.state.spare == 2 * REJECTABLE_TOKENS
        plain = DynamicCache()
        llama.generate(IDS, **GIVEN, past_key_values=plain)
        assert plain.layers[0].memory.state.spare == 0


def test_a_cache_from_a_call_without_help_is_refused_before_the_first_token(llama):
    with extended(llama, "window:window=9"), torch.no_grad():
        cache = DynamicCache()
        first = llama.generate(IDS, **GIVEN, past_key_values=cache)
        before = cache.get_seq_length()
        with pytest.raises(InvalidValue, match="must begin in an assisted call"):
            llama.generate(first, **GIVEN, past_key_values=cache, prompt_lookup_num_tokens=5)
        assert cache.get_seq_length() == before
        llama.generate(first, **GIVEN, past_key_values=cache)


def test_both_methods_are_the_classs_own_again(llama):
    before = trace(llama)
    handle = extend(llama, "yarn:factor=4")
    assert "generate" in llama.__dict__
    assert "save_pretrained" in llama.__dict__
    handle.remove()
    assert trace(llama) == before
    assert not {"generate", "save_pretrained"} & set(llama.__dict__)


def test_a_method_that_was_there_before_stays():
    model = tiny("llama", num_hidden_layers=1)
    own = model.generate
    model.__dict__["generate"] = own
    with extended(model, "yarn:factor=4"):
        assert model.__dict__["generate"] is not own
    assert model.__dict__["generate"] is own


@pytest.mark.parametrize("text", ["yarn:factor=4", "rerope:window=8+log_n", "biases.kerple_log"])
def test_what_save_pretrained_writes_comes_back_extended(tmp_path, text):
    model = tiny("llama", num_hidden_layers=2)
    with extended(model, text):
        for parameter in model.parameters():
            parameter.data.mul_(1.1)
        expected = logits(model, IDS)
        model.save_pretrained(tmp_path)
    torch.testing.assert_close(logits(load(tmp_path), IDS), expected, rtol=0, atol=1e-4)
    model.save_pretrained(tmp_path / "bare")
    assert {path.name for path in (tmp_path / "bare").iterdir()} == {
        "config.json",
        "generation_config.json",
        "model.safetensors",
    }
    bare = AutoModelForCausalLM.from_pretrained(tmp_path / "bare")
    assert torch.equal(logits(bare, IDS), logits(model, IDS))


def test_save_pretrained_takes_a_state_as_training_at_scale_hands_it_over(tmp_path):
    model = tiny("llama", num_hidden_layers=2)
    with extended(model, "biases.kerple_log"):
        state = {name: value.clone() for name, value in model.state_dict().items()}
        expected = logits(model, IDS)
        for parameter in model.parameters():
            parameter.data.mul_(2)
        model.save_pretrained(tmp_path / "other", is_main_process=False)
        assert not list(tmp_path.rglob("ropewalk*"))
        model.save_pretrained(tmp_path / "saved", state_dict=state)
    torch.testing.assert_close(logits(load(tmp_path / "saved"), IDS), expected, rtol=0, atol=1e-4)


def test_a_folder_is_uploaded_in_a_step_of_its_own(tmp_path):
    model = tiny("llama", num_hidden_layers=1)
    with extended(model, "yarn:factor=4"), pytest.raises(InvalidValue, match="push_to_hub"):
        model.save_pretrained(tmp_path, push_to_hub=True)
    assert not list(tmp_path.iterdir())


PAGES = ContinuousBatchingConfig(page_size=32, num_blocks=64, max_batch_tokens=64)
GREEDY = GenerationConfig(do_sample=False, eos_token_id=-1, pad_token_id=0, max_new_tokens=24)
UNEQUAL = [IDS[0, :count].tolist() for count in (5, 30, 63)]


def together(model):
    """What transformers writes to several prompts in one batch that is filled up as texts end."""
    answers = model.generate_batch(UNEQUAL, GREEDY, PAGES, warmup=False)
    assert not [answer.error for answer in answers.values() if answer.error]
    return {tuple(answer.prompt_ids): answer.generated_tokens for answer in answers.values()}


@pytest.mark.parametrize("text", first_of_each(["yarn:factor=4", "pi:factor=4", "abf:new_base=100000"]))
@pytest.mark.filterwarnings("ignore")
def test_a_static_schedule_is_in_force_in_continuous_batching(llama, text):
    base = together(llama)
    with extended(llama, text) as handle:
        assert handle.mode == "tables"
        got = together(llama)
        for prompt in UNEQUAL:
            alone = llama.generate(torch.tensor([prompt]), generation_config=GREEDY)[0, len(prompt) :]
            assert got[tuple(prompt)] == alone.tolist()
    assert got != base
    assert together(llama) == base


@pytest.mark.parametrize("text", ["dynamic_yarn", "rerope:window=8+log_n", "biases.alibi", "window:window=9"])
def test_continuous_batching_is_refused_under_our_attention(llama, text):
    with extended(llama, text):
        for refused in (llama.init_continuous_batching, lambda: llama.generate_batch(UNEQUAL, GREEDY)):
            with pytest.raises(DoesNotFit, match=r"continuous batching runs attention of its own.*use generate"):
                refused()
    assert "init_continuous_batching" not in llama.__dict__


def test_continuous_batching_that_began_before_the_extension_writes_nothing_under_it(llama):
    manager = llama.init_continuous_batching(GREEDY, PAGES)
    with extended(llama, "rerope:window=8"):
        manager.start()
        manager.add_request(UNEQUAL[1])
        answer = manager.get_result(timeout=60)
        manager.stop(block=True)
    manager.destroy()
    assert answer.generated_tokens == []
    assert "would leave the extension out" in answer.error
