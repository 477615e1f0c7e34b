"""What an engine can load is known before anything is measured, and agrees with what `export` does."""

import pytest

import ropewalk as rw
from ropewalk.search.conditions import LOADERS
from ropewalk.search.goal import DeployTarget, Goal
from ropewalk.search.spaces import Pairs

from hf.models import tiny

ENGINES = LOADERS[2:]


@pytest.fixture(scope="module")
def llama():
    return tiny("llama", num_hidden_layers=2)


def goal_of(model, deployable):
    return Goal(facts=rw.inspect(model).facts, target_len=256, deployable=deployable)


def lines(model):
    wanted = goal_of(model, "any")
    pairs = Pairs()
    named = {
        line: rw.parse(line, trained_len=32, target_len=256) for line in ("yarn", "rerope", "dynamic_yarn", "log_n")
    }
    return {**named, "pairs": pairs.extension(wanted, pairs.example(wanted))}


@pytest.mark.sampled(cases=2)
@pytest.mark.parametrize(
    ("deployable", "taken"),
    [
        ("any", {"yarn", "rerope", "dynamic_yarn", "log_n", "pairs"}),
        ("static", {"yarn", "pairs"}),
        ("vllm", {"yarn", "pairs"}),
        ("llama.cpp", {"yarn", "pairs"}),
    ],
)
def test_who_takes_what(llama, deployable, taken):
    engine, wanted = DeployTarget.of(llama), goal_of(llama, deployable)
    assert {line for line, each in lines(llama).items() if engine.takes(wanted, each)} == taken


def test_llama_cpp_takes_divisors_in_some_architectures_only():
    qwen3 = tiny("qwen3", num_hidden_layers=2)
    engine, wanted = DeployTarget.of(qwen3), goal_of(qwen3, "llama.cpp")
    assert {line for line, each in lines(qwen3).items() if engine.takes(wanted, each)} == {"yarn"}


@pytest.mark.sampled(cases=3)
@pytest.mark.parametrize("target", ["vllm", "llama.cpp"])
@pytest.mark.parametrize("line", ["yarn", "pairs", "rerope"])
def test_it_agrees_with_export(llama, tmp_path, target, line):
    extension = lines(llama)[line]
    expected = DeployTarget.of(llama).takes(goal_of(llama, target), extension)
    with rw.extended(llama, extension):
        try:
            written = rw.export(llama, tmp_path / "out", target=target, target_len=256, plugin=False).kind != "frozen"
        except rw.DoesNotFit:
            written = False
    assert written == expected


def test_what_does_not_fit_the_model_is_not_taken(llama):
    engine = DeployTarget.of(llama)
    assert not engine.takes(goal_of(llama, "any"), rw.parse("rerope:window=32"))  # as long as the trained length
    assert engine.takes(goal_of(llama, "any"), rw.parse("rerope:window=31"))


def test_a_model_whose_config_knows_divisors_alone():
    """Phi-3's queries, keys and values come from one matrix; vLLM reads the temperature beside the divisors."""
    phi3 = tiny("phi3", num_hidden_layers=2)
    engine, warm = DeployTarget.of(phi3), lines(phi3)["pairs"]
    cold = rw.Extension(frequencies=warm.frequencies)
    assert engine.takes(goal_of(phi3, "vllm"), warm)
    assert engine.takes(goal_of(phi3, "vllm"), cold)
    assert not engine.takes(goal_of(phi3, "llama.cpp"), warm)
