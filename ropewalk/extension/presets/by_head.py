"""Presets in which the heads of a layer differ, for a trained rotary model at inference; nothing is trained.

A list names heads by their number in the whole model: the key heads of the first layer, then those of the second.
"""

from __future__ import annotations

from ropewalk.errors import InvalidValue
from ropewalk.extension.extension import Extension
from ropewalk.extension.presets.arguments import Length, checked_arguments, require_countable
from ropewalk.methods.frequencies import Interpolation
from ropewalk.methods.reach import Causal, Sinks

AS_AUTHORS = 512  # trained tokens from which on DuoAttention's window and sinks are the authors'
UNSCALED_LAYERS = 2  # the first ones, which the authors of Ms-PoE leave as they are


@checked_arguments
def duo_attention(
    *,
    retrieval: tuple[int, ...] = (),
    layers: int,
    key_heads: int,
    window: int | None = None,
    n_sink: int | None = None,
    trained_len: Length = None,
) -> Extension:
    """DuoAttention: heads listed as `retrieval` see all keys, the others the first 64 and the last 256 alone.

    `ropewalk train retrieval_heads` finds the heads that retrieve, which are a model's own; they are counted through
    the whole model. Without a list none retrieves: a plain window with sinks. The cache shrinks to their share of all
    heads. Sinks keep their distance, so that beyond the trained length a schedule such as yarn is needed too. A model
    trained on few tokens has a window of half of them, and an eighth as sinks.

    Source: Xiao et al. 2024, arXiv:2410.10819, sec. 2; mit-han-lab/duo-attention, README (sinks 64, recent 256).
    """
    least = min(trained_len or AS_AUTHORS, AS_AUTHORS)
    window = least // 2 if window is None else window
    n_sink = max(least // 8, 1) if n_sink is None else n_sink
    by_layer = _by_layer(retrieval, layers, key_heads)
    full = Extension(reach=Causal())
    return Extension(
        reach=Sinks(window=window, n_sink=n_sink, renumber=False),
        layers={layer: Extension(heads=dict.fromkeys(heads, full)) for layer, heads in by_layer.items()},
    )


@checked_arguments
def ms_poe(
    *, ranks: tuple[int, ...] = (), layers: int, key_heads: int, smallest: float = 1.2, largest: float = 1.8
) -> Extension:
    """Ms-PoE: positions of each head divided by a factor of its own, 1.2 for the head whose weights stand out most.

    `ranks` has a number for each head, 0 for the one of its layer that has most weights above three times the mean in
    the last row. Without ranks the heads of a layer count down, which the authors call normal. The first two layers
    stay as they are.

    Source: Zhang et al. 2024, arXiv:2403.04797, sec. 3; VITA-Group/Ms-PoE, src/ms_poe.sh (1.2 to 1.8).
    """
    require_countable(layers, key_heads)
    if layers <= UNSCALED_LAYERS:
        raise InvalidValue(
            "layers", f"above {UNSCALED_LAYERS}, since the first {UNSCALED_LAYERS} stay as they are", layers
        )
    if ranks and len(ranks) != layers * key_heads:
        raise InvalidValue("ranks", f"one for each of {layers * key_heads} key heads", len(ranks))
    if outside := [rank for rank in ranks if not 0 <= rank < key_heads]:
        raise InvalidValue("ranks", f"each from 0 to {key_heads - 1}", outside[0])
    if not 1 <= smallest <= largest:
        raise InvalidValue("smallest", f"from 1 to largest ({largest:g})", smallest)
    stated = {}
    for layer in range(UNSCALED_LAYERS, layers):
        heads = {}
        for head in range(key_heads):
            rank = ranks[layer * key_heads + head] if ranks else key_heads - 1 - head
            factor = smallest + (largest - smallest) * rank / key_heads
            heads[head] = Extension(frequencies=Interpolation(factor=round(factor, 4)))
        stated[layer] = Extension(heads=heads)
    return Extension(layers=stated)


def _by_layer(retrieval: tuple[int, ...], layers: int, key_heads: int) -> dict[int, list[int]]:
    """Key heads of each layer, by their numbers in the whole model."""
    require_countable(layers, key_heads)
    if outside := [number for number in retrieval if not 0 <= number < layers * key_heads]:
        rule = f"numbers of the model's {layers * key_heads} key heads, from 0 to {layers * key_heads - 1}"
        raise InvalidValue("retrieval", rule, outside[0])
    by_layer: dict[int, list[int]] = {}
    for number in sorted(set(retrieval)):
        by_layer.setdefault(number // key_heads, []).append(number % key_heads)
    return by_layer
