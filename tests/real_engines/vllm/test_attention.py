"""Ropewalk's attention inside vLLM: every method that rotary modules cannot carry, under all that a server does."""

import os
import random

import pytest
import torch

import ropewalk as rw
from ropewalk import DoesNotFit
from ropewalk.hf.runtime import rounded_cache
from ropewalk.hf.runtime.rounded_cache import RoundedCache

from nightly import few_by_day, first_of_each
from real_engines import models
from real_engines.vllm.asking import Job, ask
from real_engines.vllm.measured import measured_or_refused

METHODS = [
    "rerope+log_n",
    "leaky_rerope",
    "self_extend",
    "long_reach",
    "dpe",
    "dual_chunk",
    "string",
    "streaming",
    "lm_infinite",
    "bca",
    "dynamic_yarn",
    "dynamic_ntk",
    "dynamic_ntk+rerope",
    "alibi",
    "rerope:window=128+yarn",
    "hwfa",
    "irope",
]
SMALL = ["llama", "mistral", "qwen2", "qwen3", "gemma3_text", "granite", "stablelm", "glm4"]
SERVED = ["rerope+log_n", "streaming", "dynamic_yarn", "dual_chunk"]
TARGET = 2048


@pytest.mark.parametrize("methods", few_by_day(METHODS, SERVED), ids=["few", "others"])
def test_the_carried_model_under_every_method_of_attention(methods, tmp_path, records):
    pairs = measured_or_refused([("carried", method, "float32") for method in methods], tmp_path, records)
    assert [(pair.method, pair.exported.kind) for pair in pairs] == [(method, "plugin") for method in methods]


@pytest.mark.nightly
@pytest.mark.parametrize("method", first_of_each(["rerope+log_n", "dynamic_yarn", "streaming:window=200"]))
def test_architectures_under_attention(method, tmp_path, records):
    pairs = measured_or_refused([(name, method, "float32") for name in SMALL], tmp_path, records)
    assert [pair.architecture for pair in pairs] == SMALL


@pytest.mark.nightly
def test_bfloat16_under_attention(tmp_path, records):
    pairs = measured_or_refused([("carried", method, "bfloat16") for method in SERVED], tmp_path, records)
    assert [pair.method for pair in pairs] == SERVED


def requests(count, longest, seed=5):
    """Prompts of unequal lengths from the standard library's source."""
    text, choose = models.prompt(), random.Random(seed)
    lengths = [choose.randint(1, longest) for _ in range(count)]
    begins = [choose.randint(0, len(text) - length) for length in lengths]
    return [text[begin : begin + length] for begin, length in zip(begins, lengths, strict=True)]


def folder_of(method, place):
    model = models.carried()
    rw.extend(model, method, target_len=TARGET)
    return rw.export(model, place, target="vllm", target_len=TARGET).command


def require_equal(answers, others):
    """The same tokens, and log-probabilities within 1e-4, as far as the shorter ones were decoded."""
    for one, other in zip(answers, others, strict=False):
        count = len(other.chosen)
        assert one.chosen[:count] == other.chosen
        assert torch.equal(one.decoded_ids[:count], other.decoded_ids)
        assert (one.decoded_values[:count] - other.decoded_values).abs().max() < 1e-4


@pytest.mark.nightly
@pytest.mark.timeout(1800)  # 32 requests one after the other, on machines that do other work too
@pytest.mark.parametrize(
    ("method", "decoded"), [("rerope+log_n", 128), ("dynamic_yarn", 64), ("streaming", 64), ("dual_chunk", 64)]
)
def test_32_requests_served_alone_and_together(method, decoded, tmp_path):
    """Prompts in chunks of 256 beside decoding, up to 128 tokens decoded each; then the first ones with prefixes that
    were served before, and with drafts of a few tokens."""
    command, prompts = folder_of(method, tmp_path / "served"), requests(32, 900)
    decoded = int(os.environ.get("DECODED", decoded))  # DECODED=256: all of them, some minutes more
    common = {"prompts": prompts, "decode": decoded, "scores_prompts": False}
    fewer = {"prompts": prompts[:12], "decode": 48, "scores_prompts": False}
    small = "--enforce-eager --max-num-batched-tokens 256"
    drafts = """--speculative-config '{"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4}'"""
    jobs = {
        "together": Job(command, **common, options=f"{small} --no-enable-prefix-caching"),
        "alone": Job(command, **common, together=False, options=f"{small} --no-enable-prefix-caching"),
        "prefixes": Job(command, **fewer, repeat=2, options=f"{small} --enable-prefix-caching"),
        "drafts": Job(command, **fewer, options=f"{small} --no-enable-prefix-caching {drafts}"),
    }
    served = ask(jobs, tmp_path, seconds=1200)
    for name in ("alone", "prefixes", "drafts"):
        require_equal(served["together"].answers, served[name].answers)
    cached = sum(answer.cached for answer in served["prefixes"].answers)
    assert cached == 0 if method == "streaming" else cached > 0  # pages.py says why


@pytest.mark.nightly
def test_a_window_with_sinks_needs_constant_memory(tmp_path):
    """100,000 tokens of one request in 24 pages of 128 tokens; the last answers are those of our own streaming."""
    length, model = 100_000, models.carried()
    ids = (models.prompt() * (1 + length // models.LONGEST))[:length]
    rw.extend(model, "streaming", target_len=length + 8)
    command = rw.export(model, tmp_path / "served", target="vllm", target_len=length + 8).command
    options = "--enforce-eager --num-gpu-blocks-override 24"
    job = Job(command, [ids], decode=4, scores_prompts=False, options=options)
    (answer,) = ask({"long": job}, tmp_path)["long"].answers
    expected = last_log_probabilities(model, ids)
    assert answer.chosen[0] == int(expected.argmax())
    assert (answer.decoded_values[0] - expected[answer.decoded_ids[0]]).abs().max() < 1e-4


@torch.no_grad()
def last_log_probabilities(model, ids):
    """What the model says after a long text, read in chunks."""
    cache, logits = None, None
    for chunk in torch.tensor([ids]).split(2048, 1):
        said = model(chunk, past_key_values=cache, use_cache=True, logits_to_keep=1)
        cache, logits = said.past_key_values, said.logits
    return logits[0, -1].log_softmax(-1)


@pytest.mark.nightly
def test_several_models_in_one_process(tmp_path):
    """Each follows its own plan, and one without a plan follows none."""
    ids = models.prompt(700)
    jobs = {method: Job(folder_of(method, tmp_path / method[:6]), [ids]) for method in ("rerope+log_n", "streaming")}
    base = models.carried()
    base.save_pretrained(tmp_path / "base")
    jobs["base"] = Job(f"vllm serve {tmp_path / 'base'} --max-model-len 512", [ids[:500]])
    served = ask(jobs, tmp_path)
    for method in ("rerope+log_n", "streaming"):
        model = models.carried()
        rw.extend(model, method, target_len=TARGET)
        assert served[method].answers[0].gap(models.log_probabilities(model, ids)).largest < 1e-4
    assert served["base"].answers[0].gap(models.log_probabilities(base, ids[:500])).largest < 1e-4


@pytest.mark.nightly
def test_quantised_caches(tmp_path, monkeypatch):
    """What vLLM's own attention computes runs by fp8 caches, and rounds as our own does; ours refuses them.

    The remedy of the refusal works: the model's own type.
    """
    monkeypatch.setattr(rounded_cache, "rounded", cut_to_fp8)
    ids, jobs, exact, rounded = models.prompt(1500), {}, {}, {}
    for method in ("yarn", "ntk_mixed", "rerope+log_n"):
        model = models.carried()
        rw.extend(model, method, target_len=TARGET)
        command = rw.export(model, tmp_path / method[:4], target="vllm", target_len=TARGET).command
        options = "--enforce-eager --no-enable-prefix-caching --kv-cache-dtype"
        jobs[method] = Job(command, [ids], may_refuse=True, options=f"{options} fp8")
        exact[method] = models.log_probabilities(model, ids)
        with torch.no_grad():
            cache = RoundedCache("fp8", config=model.config)
            rounded[method] = model(torch.tensor([ids]), past_key_values=cache).logits[0].log_softmax(-1)
    served = ask({**jobs, "remedy": Job(command, [ids], "bfloat16", options=f"{options} bfloat16")}, tmp_path)
    refused = served["rerope+log_n"].refused
    assert "not quantised" in refused
    assert "--kv-cache-dtype bfloat16" in refused
    assert mean_gap(served["remedy"].answers[0], exact["rerope+log_n"]) < 0.03
    if "requires x86 with AVX-512" in (served["yarn"].refused or ""):
        pytest.skip("vLLM has no fp8 caches on this processor")
    # Tables of the plugin are exact, those of transformers in float32: of nearly equal keys many round to another step.
    for method, times in {"yarn": 20, "ntk_mixed": 1.3}.items():
        (answer,) = served[method].answers
        assert mean_gap(answer, exact[method]) > times * mean_gap(answer, rounded[method])


def mean_gap(answer, expected):
    """Of the log-probabilities that vLLM says; the mean, since one rounded number in many is a step off."""
    return float((expected[:-1].gather(-1, answer.ids) - answer.values).abs().mean())


def cut_to_fp8(x, _):
    """As vLLM 0.32 does on CPUs: digits that e4m3 has no room for are cut off."""
    nearest = x.clamp(-448, 448).to(torch.float8_e4m3fn)
    bits = nearest.view(torch.uint8)
    return torch.where(nearest.float().abs() > x.float().abs(), bits - 1, bits).view(nearest.dtype).to(x.dtype)


def test_what_is_refused(tmp_path):
    """An extension whose keys pages cannot hold."""
    model = models.carried()
    rw.extend(model, "xpos", target_len=TARGET)
    with pytest.raises(DoesNotFit, match="keys of xpos decay"):
        rw.export(model, tmp_path / "xpos", target="vllm", target_len=TARGET)
