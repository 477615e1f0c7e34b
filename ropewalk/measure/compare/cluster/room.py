"""Room on a cluster: the memory that a worker needs, and for how many workers there is enough that nobody uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ropewalk.errors import DoesNotFit
from ropewalk.hf.use.inspect import sizes
from ropewalk.measure.material.subject import Subject
from ropewalk.measure.metrics.losses import TOKENS_PER_BATCH
from ropewalk.methods.spec import Json

MODELS = 2.0  # the model as it arrives, and as it is used
STATES = 12  # hidden states of a token that exist at once in a layer: its input, queries, keys, values, their products
FLOAT32_BYTES = 4  # bytes, also where the model is in half precision: losses are computed in float32


def bytes_needed(subject: Subject) -> int:
    """Bytes: the model, the cache of the longest text, and what is computed for the tokens of one batch."""
    config: Any = subject.model.config.get_text_config()
    weights = sum(parameter.nbytes for parameter in subject.model.parameters())
    cache = sizes(subject.model, target_len=subject.longest).cache_bytes(subject.own.extension)
    inner = int(getattr(config, "intermediate_size", None) or 4 * config.hidden_size)
    numbers = int(config.vocab_size) + STATES * int(config.hidden_size) + 2 * inner
    return int(MODELS * weights + cache + FLOAT32_BYTES * max(TOKENS_PER_BATCH, subject.longest) * numbers)


def workers_with_room(nodes: Sequence[Json], free: Mapping[str, float], need: float) -> tuple[str, int]:
    """GPU or CPU, and for how many workers of `need` bytes there is room; `free` is what no other job holds."""
    alive = [node["Resources"] for node in nodes if node["Alive"]]
    kind = "GPU" if any(node.get("GPU", 0) >= 1 for node in alive) else "CPU"
    most = sum(int(min(node.get(kind, 0), node.get("memory", 0) // need)) for node in alive)
    size = f"{need / 2**30:.3g} GiB"
    if most < 1:
        sentence = f"none of the cluster's {len(alive)} nodes has a {kind} and {size} for a model with its text"
        raise DoesNotFit.because("--ray", sentence, remedy="add a larger node, or shorten --lengths")
    now = int(min(most, free.get(kind, 0), free.get("memory", 0) // need))
    if now < 1:
        sentence = f"other jobs hold the cluster: none of its {len(alive)} nodes has a {kind} and {size} free"
        raise DoesNotFit.because("--ray", sentence, remedy="wait for them to end, or add a node")
    return kind, now
