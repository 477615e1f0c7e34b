"""Models that the plugin's tables carry, served together, in chunks, with cached prefixes, compiled: equal answers."""

import json
import os

import pytest

import ropewalk as rw

from real_engines import models
from real_engines.vllm.asking import Job, ask

TARGET = 2048
DECODED = int(os.environ.get("DECODED", "128"))  # DECODED=256: some minutes more
REQUESTS = 32
EAGER = "--enforce-eager"
CACHING, ANEW = f"{EAGER} --enable-prefix-caching", f"{EAGER} --no-enable-prefix-caching"
LENGTHS = [1 + (37 * i * i) % 900 for i in range(REQUESTS)]  # from 1 token to beyond the trained length


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("serving") / "plugin"
    model = models.carried()
    rw.extend(model, "yarn+log_n", target_len=TARGET)
    result = rw.export(model, place, target="vllm", target_len=TARGET, tokenizer=models.carried_tokenizer())
    assert result.kind == "plugin"
    return model, result.command


def prompts():
    text = models.prompt(4096)
    return [text[start : start + length] for start, length in enumerate(LENGTHS)]


@pytest.mark.nightly
def test_requests_together_are_as_alone(folder, tmp_path):
    """32 requests of unequal lengths, their prompts read in chunks of 256 tokens, 128 tokens decoded each."""
    _, command = folder
    common = {"decode": DECODED, "scores_prompts": False, "options": f"{ANEW} --max-num-batched-tokens 256"}
    together = Job(command, prompts(), **common)
    served = ask({"together": together, "alone": together._replace(together=False)}, tmp_path)
    for i, (one, other) in enumerate(zip(served["together"].answers, served["alone"].answers, strict=True)):
        assert one.chosen == other.chosen, f"request {i} of {LENGTHS[i]} tokens"
        assert (one.decoded_values - other.decoded_values).abs().max() < 1e-4


def test_decoded_tokens_are_those_of_our_own_model(folder, tmp_path):
    """What vLLM writes and says of it, up to four times the trained length."""
    model, command = folder
    prompt = models.prompt(TARGET - DECODED)
    answer = ask({"job": Job(command, [prompt], decode=DECODED)}, tmp_path)["job"].answers[0]
    ours = models.log_probabilities(model, [*prompt, *answer.chosen])
    assert answer.gap(ours[: len(prompt)]).largest < 1e-4
    decoded = ours[len(prompt) - 1 : -1].gather(-1, answer.decoded_ids)
    assert (decoded - answer.decoded_values).abs().max() < 1e-4


@pytest.mark.nightly
def test_cached_prefixes_and_compiled_models_answer_the_same(folder, tmp_path):
    model, command = folder
    prompt = models.prompt(1200)
    jobs = {
        "cached": Job(
            command, [prompt], decode=8, repeat=2, scores_prompts=False, options=f"{EAGER} --enable-prefix-caching"
        ),
        "compiled": Job(command, [prompt], decode=8, options="--no-enable-prefix-caching"),
    }
    ours = models.log_probabilities(model, prompt)
    served = ask(jobs, tmp_path)
    assert served["cached"].answers[0].cached > 1000
    for answer in (served["cached"].answers[0], served["compiled"].answers[0]):
        assert (ours[-1, answer.decoded_ids[0]] - answer.decoded_values[0]).abs().max() < 1e-4
    assert served["cached"].answers[0].chosen == served["compiled"].answers[0].chosen
    assert served["compiled"].answers[0].gap(ours).largest < 1e-4


@pytest.mark.nightly
def test_two_models_in_one_process_keep_their_own_extensions(tmp_path):
    expected, jobs, ids = {}, {}, models.random_prompt(1024)
    for name, method in {"first": "yarn+log_n", "second": "ntk+log_n", "native": "pi"}.items():
        model = models.small("llama")
        rw.extend(model, method, target_len=TARGET)
        result = rw.export(model, tmp_path / name, target="vllm", target_len=TARGET)
        expected[name], jobs[name] = models.log_probabilities(model, ids), Job(result.command, [ids], keeps=True)
    jobs["again"], expected["again"] = jobs["first"], expected["first"]
    served = ask(jobs, tmp_path)
    for name in jobs:
        assert served[name].answers[0].gap(expected[name]).largest < 5e-3 if name == "native" else 1e-4


@pytest.mark.nightly
def test_guessed_tokens_are_checked_by_the_same_model(folder, tmp_path):
    """Speculative decoding by n-grams: several queries of one request in a step, at their own positions."""
    _, command = folder
    guessing = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3}
    plain = Job(command, [models.prompt(600) * 2], decode=64, scores_prompts=False, options=ANEW)
    guessed = plain._replace(options=f"{ANEW} --speculative-config '{json.dumps(guessing)}'")
    served = ask({"plain": plain, "guessed": guessed}, tmp_path)
    assert served["guessed"].answers[0].chosen == served["plain"].answers[0].chosen


FACTORS = {1: (300, 504), 2: (505, 1016), 4: (1017, 1500)}  # prompts whose answers have 8 tokens, by their factor


def under_factor(model, factor, ids):
    """What the static schedule of a factor says of a prompt."""
    with rw.extended(model, f"yarn:factor={factor}"):
        return models.log_probabilities(model, ids)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["carried", "qwen3_5_text"])  # the second with M-RoPE
def test_each_request_has_the_smallest_factor_that_covers_it(kind, tmp_path):
    """Together, in chunks, compiled, with cached prefixes: all prompts begin alike, and only those of one factor may
    share keys."""
    real = kind == "carried"
    model, text = (models.carried(), models.prompt(1500)) if real else (models.small(kind), models.random_prompt(1500))
    with rw.extended(model, "dynamic_yarn"):
        result = rw.export(model, tmp_path / "served", target="vllm", request_factors=[*FACTORS])
    cases = [(factor, text[:length]) for factor, lengths in FACTORS.items() for length in lengths]
    small = "--max-num-batched-tokens 256 --block-size 32"
    job = Job(result.command, [ids for _, ids in cases], decode=8, setup="" if real else "videos")
    jobs = {
        "anew": job._replace(options=f"{ANEW} {small}"),
        "cached": job._replace(options=f"{CACHING} {small}", repeat=2, scores_prompts=False),
        "compiled": job._replace(options=f"--no-enable-prefix-caching {small}"),
    }
    served = ask(jobs, tmp_path)
    for i, (factor, ids) in enumerate(cases):
        ours = under_factor(model, factor, ids)
        answers = {name: one.answers[i] for name, one in served.items()}
        for name, answer in answers.items():
            assert (ours[-1, answer.decoded_ids[0]] - answer.decoded_values[0]).abs().max() < 1e-3, (factor, name)
            assert answer.chosen == answers["anew"].chosen
        for name in ("anew", "compiled"):
            assert answers[name].gap(ours).largest < 1e-3
        assert answers["cached"].cached >= len(ids) // 32 * 32 - 32
        others = [under_factor(model, other, ids) for other in FACTORS if other != factor]
        assert all(answers["anew"].gap(other).largest > 0.05 for other in others)
