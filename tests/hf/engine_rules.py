"""What engines compute from a config, each rule rewritten from its source in as few lines as it takes."""

import math
from typing import NamedTuple

import torch


class Computed(NamedTuple):
    """A table in radians per position, what cos and sin are multiplied by, and how many positions there are."""

    table: torch.Tensor
    temperature: float
    rows: float = math.inf


def vllm(config):
    """vLLM 0.32.0: model_executor/layers/rotary_embedding, and the length it allows (config/model.py)."""
    own, longest = config["rope_parameters"], config["max_position_embeddings"]
    kind, factor = own["rope_type"], own.get("factor", 1.0)
    plain = _plain(own["rope_theta"], _pairs(config))
    allowed = longest if kind in ("longrope", "llama3", "yarn") else longest * factor
    if kind == "longrope":  # short_mscale and long_mscale, and attention_factor is not read
        assert own["short_mscale"] == own["long_mscale"]
        assert own["short_factor"] == own["long_factor"]
        return Computed(plain / torch.tensor(own["long_factor"]).double(), own["long_mscale"], longest), allowed
    if kind == "yarn":
        original = own["original_max_position_embeddings"]
        table = _yarn(plain, own, original, own.get("truncate", True))
        temperature = own.get("attention_factor", 0.1 * math.log(factor) + 1)
        return Computed(table, temperature, original * factor), allowed
    if kind == "llama3":
        return Computed(_llama3(plain, own), 1.0, longest), allowed
    assert kind in ("default", "linear")
    return Computed(plain / factor, 1.0, longest * factor), allowed


def sglang(config):
    """SGLang 0.5.23: srt/layers/rotary_embedding. YaRN's table grows with the text."""
    own = config["rope_parameters"]
    if own["rope_type"] != "yarn":
        return vllm(config)[0]
    table = _yarn(
        _plain(own["rope_theta"], _pairs(config)),
        own,
        own["original_max_position_embeddings"],
        own.get("truncate", True),
    )
    return Computed(table, own.get("attn_factor", 1.0) * (0.1 * math.log(own["factor"]) + 1))


def llama_cpp(config, divisors=None):
    """llama.cpp b11739: the converter's base.py, llama-context.cpp (temperature), ggml_rope_yarn (ramp)."""
    own = config["rope_parameters"]
    plain, kind = _plain(own["rope_theta"], _pairs(config)), own["rope_type"]
    if divisors is not None:  # rope_freqs.weight
        assert kind not in ("linear", "yarn", "longrope", "llama3")
        return Computed(plain / torch.tensor(divisors).double(), 1.0)
    if kind == "yarn":
        table = _yarn(plain, {"factor": own["factor"]}, own["original_max_position_embeddings"], True)
        return Computed(table, 0.1 * math.log(own["factor"]) + 1)
    assert kind in ("default", "linear")
    return Computed(plain / own.get("factor", 1.0), 1.0)


def mlx(config):
    """mlx-lm 0.32.2: models/rope_utils.py, and what models/llama.py hands it."""
    own = config["rope_scaling"] or {"rope_type": "default"}
    plain, kind = _plain(config["rope_theta"], _pairs(config)), own["rope_type"]
    if kind == "longrope":  # long_factor alone, and neither attention_factor nor mscale
        times = config["max_position_embeddings"] / own["original_max_position_embeddings"]
        warm = math.sqrt(1 + math.log(times) / math.log(own["original_max_position_embeddings"])) if times > 1 else 1.0
        return Computed(plain / torch.tensor(own["long_factor"]).double(), warm)
    if kind == "yarn":
        grown = [0.1 * own.get(key, usual) * math.log(own["factor"]) + 1 for key, usual in MSCALES]
        return Computed(_yarn(plain, own, own["original_max_position_embeddings"], True), grown[0] / grown[1])
    if kind == "llama3":
        return Computed(_llama3(plain, own), 1.0)
    assert kind in ("default", "linear")
    return Computed(plain / own.get("factor", 1.0), 1.0)


MSCALES = (("mscale", 1.0), ("mscale_all_dim", 0.0))


def _pairs(config):
    return config["head_dim"] // 2


def _plain(base, pairs):
    return torch.tensor([base ** (-i / pairs) for i in range(pairs)], dtype=torch.float64)


def _yarn(plain, own, original, truncate):
    base, size = 1 / float(plain[-1]) ** (1 / (1 - 1 / len(plain))), 2 * len(plain)
    ends = [
        size * math.log(original / (2 * math.pi * own.get(name, usual))) / (2 * math.log(base))
        for name, usual in (("beta_fast", 32), ("beta_slow", 1))
    ]
    first, last = (math.floor(ends[0]), math.ceil(ends[1])) if truncate else ends
    first, last = max(first, 0), min(last, size - 1)
    keep = [1 - min(1.0, max(0.0, (i - first) / max(0.001, last - first))) for i in range(len(plain))]
    kept = torch.tensor(keep, dtype=torch.float64)
    return plain * kept + plain / own["factor"] * (1 - kept)


def _llama3(plain, own):
    turns = own["original_max_position_embeddings"] * plain / (2 * math.pi)
    low, high = own["low_freq_factor"], own["high_freq_factor"]
    kept = ((turns - low) / (high - low)).clamp(0, 1)
    return plain * kept + plain / own["factor"] * (1 - kept)
