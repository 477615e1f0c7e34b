"""An extension called like a rope type gives transformers' own numbers for that config, on every architecture.

The same weights are read twice: by transformers, from a config with the rope type, and under the extension of that
name, applied to the model whose config has none.
"""

import copy
from collections.abc import Iterator

import pytest
import torch
from sweep.families import CAUSAL, FAMILIES

import ropewalk as rw
from ropewalk.errors import DoesNotFit, RopewalkError
from ropewalk.hf.probe.facts import LAYOUTS, SCHEDULE, parts_of
from ropewalk.hf.probe.host import quiet
from ropewalk.methods.spec import value_text

FACTOR, TEXT = 4.0, 36  # text: within every window, so that lifting one changes no mask
CLOSE = 1e-4  # of the largest logit: float32, products in another order


def divisors(pairs):
    return tuple(1 + 3 * pair / max(pairs - 1, 1) for pair in range(pairs))


# The rope parameters of a type, and the line of its name, for a model of so many pairs.
TYPES = {
    "linear": lambda pairs: ({"factor": FACTOR}, f"pi:factor={FACTOR}"),
    "llama3": lambda pairs: (
        {"factor": FACTOR, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
        f"llama3:factor={FACTOR}",
    ),
    "yarn": lambda pairs: ({"factor": FACTOR}, f"yarn:factor={FACTOR}"),
    "yarn with mscale": lambda pairs: (
        {"factor": FACTOR, "mscale": 0.7, "mscale_all_dim": 0.4},
        f"by_parts:factor={FACTOR}+deepseek_temperature:factor={FACTOR},mscale=0.7,mscale_all_dim=0.4",
    ),
    "longrope": lambda pairs: (
        {"factor": FACTOR, "short_factor": divisors(pairs), "long_factor": divisors(pairs)},
        f"longrope:factor={FACTOR},long={value_text(divisors(pairs))},short={value_text(divisors(pairs))}",
    ),
}
BY_ATTENTION = ("yarn", "longrope")  # what is run by Ropewalk's attention as well
# The first rotate a part of each head, as the makers release them or as they are made here.
SAMPLE = ("glm4", "phi", "qwen3_next", "deepseek_v3", "phi3", "minimax", "llama", "gemma3_text", "nanochat", "cohere2")


def parts_with(parameters, changes, kinds):
    """The rope parameters of a config with a rope type in those of some types of layers, or in all."""
    if any(isinstance(part, dict) for part in parameters.values()):
        return {kind: parts_with(part, changes, ()) if kind in kinds else part for kind, part in parameters.items()}
    return {name: value for name, value in parameters.items() if name not in SCHEDULE} | changes


def is_nested(model):
    return any(isinstance(part, dict) for part in model.config.get_text_config().rope_parameters.values())


def comes_with_a_schedule(model):
    parts = parts_of(model.config.get_text_config()).values()
    return any(part.get("rope_type", "default") not in ("default", *LAYOUTS) for part in parts)


def stated(model, seen, rope_type, changes, ids):
    """The same model by a config with this rope type, and what it computes; None where it does not know the type."""
    config = copy.deepcopy(model.config)
    text = config.get_text_config()
    kinds = {layer.layer_type for layer in seen.layers if layer.limit is None and layer.rotating}
    original = {"original_max_position_embeddings": seen.facts.unscaled.trained_len}
    text.rope_parameters = parts_with(
        text.rope_parameters, {"rope_type": rope_type.split()[0], **original, **changes}, kinds
    )
    if hasattr(text, "original_max_position_embeddings"):  # transformers prefers this one where it exists
        text.original_max_position_embeddings = seen.facts.unscaled.trained_len
    try:
        twin = type(model)(config).eval()
        twin.load_state_dict(model.state_dict(), strict=False)
        return twin, logits(twin, ids)
    except (KeyError, ValueError, TypeError, AttributeError, NotImplementedError, RuntimeError):
        return None


def logits(model, ids):
    with torch.no_grad(), quiet(model):
        return model(**ids, use_cache=False).logits.double()


def plain_scaling(model):
    """The name of an attention module that rotates, and its factor of the logits without a schedule."""
    names = {module: name for name, module in model.named_modules()}
    with rw.extended(model, "rope+instead") as handle:
        layer = next(layer for layer in handle.layers if layer.probed.rotating)
        return names[layer.probed.module], layer.scaling


def made(family, name):
    """A small model and what is seen of it; None where transformers makes none, or where no config has a rope type."""
    try:
        model = family.small(name).float()
        seen = rw.inspect(model)
    except (ValueError, ImportError, RopewalkError):
        return None
    rotates = any(layer.rotating for layer in seen.layers)
    return (model, seen) if rotates and getattr(model.config.get_text_config(), "rope_parameters", None) else None


def distances(family, name) -> Iterator[tuple[str, float | str]]:
    """How far every name is from transformers, of the largest logit; or why the extension is refused."""
    if (found := made(family, name)) is None:
        return
    model, seen = found
    ids = family.text(model, TEXT, 1)
    base, instead = logits(model, ids), "+instead" * comes_with_a_schedule(model)
    name_of_module, plain = plain_scaling(model)
    for rope_type, described in TYPES.items():
        changes, line = described(seen.facts.rotating // 2)
        found = stated(model, seen, rope_type, changes, ids)
        if found is None or torch.equal(found[1], base):
            continue  # the architecture does not know the type, or ignores it
        twin, expected = found
        factor = getattr(twin.get_submodule(name_of_module), "scaling", plain) / plain
        line += f"+temperature:value={factor!r}" * (abs(factor - 1) > 1e-9) + instead  # DeepSeek's, of whole logits
        for mode in (None, "attention")[: 1 + (rope_type in BY_ATTENTION)]:
            label = f"{name}, {rope_type}{f' by {mode}' if mode else ''}"
            try:
                with rw.extended(model, line, lift_windows=not is_nested(model), mode=mode):
                    got = logits(model, ids)
            except DoesNotFit as reason:
                yield label, str(reason)
            else:
                yield label, float((got - expected).abs().max() / expected.abs().max())


def offenders(pairs):
    """What is not within rounding of transformers, and how many were compared."""
    found = [(label, apart) for family, name in pairs for label, apart in distances(family, name)]
    refused = ("does not use transformers' attention interface", "has no rotary module")
    wrong = [
        f"{label}: {apart}"
        for label, apart in found
        if not (any(words in apart for words in refused) if isinstance(apart, str) else apart <= CLOSE)
    ]
    return wrong, len(found)


def test_a_name_gives_transformers_numbers():
    wrong, compared = offenders([(CAUSAL, name) for name in SAMPLE])
    assert not wrong, "\n".join(wrong)
    assert compared > 5 * len(SAMPLE)


@pytest.mark.nightly
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.title)
@pytest.mark.parametrize("first", range(8))
def test_a_name_gives_transformers_numbers_on_every_architecture(family, first):
    names = family.names[first::8]
    wrong, compared = offenders([(family, name) for name in names])
    assert not wrong, "\n".join(wrong)
    assert compared > len(names)


def test_over_the_head_is_another_model_where_a_part_rotates():
    """The paper's temperature of whole logits has a word of its own, and is not what transformers computes."""
    model, seen = made(CAUSAL, "glm4")
    ids = CAUSAL.text(model, TEXT, 1)
    _, expected = stated(model, seen, "yarn", {"factor": FACTOR}, ids)
    with rw.extended(model, "yarn:factor=4,over=head") as handle:
        apart = (logits(model, ids) - expected).abs().max() / expected.abs().max()
        assert "yarn_temperature(i) * <" in handle.describe()
    assert apart > 100 * CLOSE


def test_describe_says_what_a_temperature_multiplies():
    for name, said in {
        "glm4": "multiplies the 8 of 16 dimensions that rotate, as in transformers and engines",
        "nanochat": "a norm after the rotation undoes it, as in transformers",
    }.items():
        with rw.extended(CAUSAL.small(name), "yarn:factor=4") as handle:
            assert said in handle.describe()
