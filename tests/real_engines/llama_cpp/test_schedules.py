"""Every exportable schedule in the real llama.cpp: log-probabilities token by token, by the command that was printed.

In float32 the bound is 5e-3: a wrong table, temperature or length is off by 1 to 20. In half precisions llama.cpp
rounds elsewhere than we do, so it may differ from us by twice what rounding costs ourselves. So it is with angles, of
which both have only 24 bits, where a model that breaks makes much of the last ones (NTK-mixed).
"""

import pytest
import torch

import ropewalk as rw
from ropewalk import DoesNotFit
from ropewalk.engines.llama_cpp.architectures import ARCHITECTURES

from nightly import first_of_each
from real_engines import models
from real_engines.record import difference
from real_engines.served import served

EXACT = 5e-3
FITTED = models.ROOT / "studies" / "results" / "fit" / "static-8x" / "extension.json"
LONGROPE = "longrope:factor=8"
BROKEN = ["frequencies.ntk_mixed:factor=8", "frequencies.ntk_mixed:factor=8+scales.temperature:value=1.3"]
# Method, kind, and how many tokens are read; the target is 4,096.
CARRIED = [
    ("yarn:factor=8", "native", 3072),
    ("pi:factor=8", "native", 2048),
    ("ntk:factor=8", "native", 2048),
    ("abf:new_base=500000", "native", 2048),
    ("yarn:factor=4", "native", 2048),
    ("yarn:factor=16", "native", 2048),
    ("llama3:factor=8", "lowered", 2048),
    (LONGROPE, "lowered", 2048),
    *((text, "lowered", 2048) for text in BROKEN),
    ("by_parts:factor=8", "lowered", 4096),
    ("by_parts:factor=8,low_turns=2,high_turns=8+scales.yarn_temperature:factor=8", "lowered", 2048),
    ("frequencies.by_parts:factor=8,truncate=false+scales.yarn_temperature:factor=8", "lowered", 2048),
    ("frequencies.by_parts:factor=8,ramp=turns+scales.temperature:value=1.3", "lowered", 2048),
    ("yarn:factor=8+scales.temperature:value=1.3", "lowered", 2048),
    (str(FITTED), "lowered", 2048),
    ("dynamic_yarn", "frozen", 2048),
    ("dynamic_ntk", "frozen", 2048),
]
IN_HALF = [
    "yarn:factor=8",
    "pi:factor=8",
    "frequencies.by_parts:factor=8,ramp=turns+scales.temperature:value=1.3",
    str(FITTED),
]
# By name everywhere, with the rest of the temperature in the queries; by divisors in Llama's kin.
ANYWHERE = ["yarn:factor=4", "pi:factor=4", "ntk:factor=4", "by_parts:factor=4"]
DIVISORS = ["llama3:factor=4", "by_parts:factor=4,low_turns=2,high_turns=8+scales.temperature:value=1.3"]
REFUSED = [
    "rerope",
    "streaming",
    "dual_chunk",
    "string",
    "ministral3:factor=8",
    "log_n",
    "biases.alibi",
    "window:window=256+yarn:factor=8",
]
READ = ["llama", "mistral", "arcee", "exaone4"]  # divisors
TOKENS = 2048


def name_of(text):
    return text.replace(f"{models.ROOT}/", "")


def rounding(model, text, ids):
    """How far the model is from itself in float32, with the same weights. It is in float32 afterwards."""
    with rw.extended(model, text):
        half = models.log_probabilities(model, ids)
    with rw.extended(model.float(), text):
        return difference(half, models.log_probabilities(model, ids), models.TRAINED).largest


def rounding_of_angles(text, ids):
    """How far the carried model is from itself with angles in float64."""
    model = models.carried()
    with rw.extended(model, text):
        plain = models.log_probabilities(model, ids)
        rotary = model.model.rotary_emb

        def exact(hidden, position_ids):
            angles = position_ids[..., None].double() * rotary.inv_freq.double()
            both = torch.cat((angles, angles), -1)
            return tuple((rotary.attention_scaling * turned).to(hidden.dtype) for turned in (both.cos(), both.sin()))

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(rotary, "forward", exact)
            return difference(plain, models.log_probabilities(model, ids), models.TRAINED).largest


@pytest.fixture(scope="module")
def record(records):
    return records("llama.cpp", "b11739")


@pytest.mark.parametrize("case", first_of_each(CARRIED, lambda case: case[1], lambda case: name_of(case[0])))
def test_carried(tmp_path, record, case):
    text, kind, tokens = case
    ids = models.prompt(tokens)
    gap, said = served(models.carried(), text, ids, tmp_path, to=models.LONGEST)
    bound = max(EXACT, 2 * rounding_of_angles(text, ids)) if text in BROKEN else EXACT
    record.ran("default", name_of(text), "float32", gap, bound, kind=said.kind, tokens=tokens)
    assert said.kind == kind
    assert gap.largest < bound


@pytest.mark.nightly
@pytest.mark.parametrize("text", IN_HALF, ids=name_of)
def test_carried_in_bfloat16(tmp_path, record, text):
    """By llama.cpp's defaults: keys and values in float16."""
    model, ids = models.carried(torch.bfloat16), models.prompt(TOKENS)
    gap, said = served(model, text, ids, tmp_path, to=models.LONGEST)
    bound = 2 * rounding(model, text, ids)
    record.ran("default", name_of(text), "bfloat16", gap, bound, kind=said.kind, tokens=TOKENS)
    assert gap.largest < bound


@pytest.mark.sampled(cases=2)
@pytest.mark.parametrize("text", ANYWHERE)
@pytest.mark.parametrize("name", list(ARCHITECTURES))
def test_architectures(tmp_path, record, name, text):
    """SmolLM3 has layers that do not rotate, which YaRN's temperature does not reach, here and there."""
    gap, said = served(models.small(name), text, models.random_prompt(TOKENS), tmp_path)
    record.ran(name, text, "float32", gap, EXACT, kind=said.kind, tokens=TOKENS)
    assert gap.largest < EXACT


@pytest.mark.sampled(cases=2)
@pytest.mark.parametrize("text", DIVISORS)
@pytest.mark.parametrize("name", list(ARCHITECTURES))
def test_divisors(tmp_path, record, name, text):
    """Read by Llama's kin; refused for the others, which would stop at the tensor."""
    model, ids = models.small(name), models.random_prompt(TOKENS)
    if name not in READ:
        with pytest.raises(DoesNotFit) as refused:
            served(model, text, ids, tmp_path)
        record.refused(name, text, str(refused.value))
        return
    gap, said = served(model, text, ids, tmp_path)
    record.ran(name, text, "float32", gap, EXACT, kind=said.kind, tokens=TOKENS)
    assert gap.largest < EXACT


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_precisions(tmp_path, record, dtype):
    model, text, ids = models.small("llama", dtype), "yarn:factor=4", models.random_prompt(TOKENS)
    gap, said = served(model, text, ids, tmp_path)
    bound = 2 * rounding(model, text, ids)
    record.ran("llama", text, str(dtype)[6:], gap, bound, kind=said.kind, tokens=TOKENS)
    assert gap.largest < bound


@pytest.mark.parametrize("text", REFUSED)
def test_refused(tmp_path, record, text):
    with pytest.raises(DoesNotFit) as refused:
        served(models.carried(), text, models.prompt(64), tmp_path, to=models.LONGEST)
    record.refused("any", text, str(refused.value))
