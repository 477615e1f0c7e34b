"""Each engine's formula, against numbers that the engine's own code gave. The files say how they were recorded."""

import json
import math
from pathlib import Path

import pytest
import torch

from ropewalk.engines.rules.rotation import Asked, RopeConfig
from ropewalk.engines.targets import ENGINES

RECORDED = {
    engine: json.loads((Path(__file__).parent / f"recorded_{engine}.json").read_text()) for engine in ("vllm", "sglang")
}
VERSIONS = [(engine, version) for engine, recorded in RECORDED.items() for version in recorded["answers"]]


def config_of(case):
    parts, head_dims = {"": case["rope"]}, {"": case["head_dim"]}
    return RopeConfig(
        model_type=case["model_type"], parts=parts, head_dims=head_dims, max_len=case["max_len"], text=case["also"]
    )


@pytest.mark.parametrize(("engine", "version"), VERSIONS)
def test_formulas_give_what_the_engine_gave(engine, version):
    recorded, rules = RECORDED[engine], ENGINES[engine]
    numbers = tuple(int(part) for part in version.split("."))
    for case, said in zip(recorded["cases"], recorded["answers"][version], strict=True):
        config, shown = config_of(case), json.dumps(case)
        computed = rules.rotation(config, "", Asked(numbers, case["served"], case["served"]))
        speed = torch.tensor(said["speed"], dtype=torch.float64)
        torch.testing.assert_close(speed, computed.inv_freq, rtol=3e-6, atol=0, msg=shown)  # theirs are float32
        assert said["size"] == pytest.approx(computed.temperature, rel=1e-6), shown
        assert "rows" not in said or said["rows"] == computed.rows, shown
        assert "length" not in said or said["length"] == rules.length(config, numbers).default, shown


def test_versions_were_recorded_on_both_sides_of_each_change():
    """What a test of one version alone would not notice."""
    yarn = [number for number, case in enumerate(RECORDED["vllm"]["cases"]) if "attention_factor" in case["rope"]]
    answers = RECORDED["vllm"]["answers"]
    assert any(answers["0.29.0"][number]["size"] != answers["0.30.0"][number]["size"] for number in yarn)
    assert any(one["length"] != two["length"] for one, two in zip(answers["0.29.0"], answers["0.30.0"], strict=True))
    assert any(one["speed"] != two["speed"] for one, two in zip(answers["0.21.0"], answers["0.29.0"], strict=True))
    assert not any(math.isnan(size) for said in answers.values() for size in (row["size"] for row in said))
