"""What a comparison says of a candidate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch

from ropewalk.engines.export import why_not_exportable
from ropewalk.engines.vllm.plans import plans_for
from ropewalk.errors import DoesNotFit
from ropewalk.extension.extension import Extension
from ropewalk.hf.attach.handle import host_of
from ropewalk.hf.use.inspect import Inspection
from ropewalk.measure.material.subject import Subject
from ropewalk.measure.metrics.intervals import TOO_FEW_PROJECTS, Estimate

# What an extension costs and where it runs, by computation alone: the same on every machine.


ENGINE = "vllm"
Deployment = Literal["static", "plugin", "here"]
DEPLOYMENTS: tuple[Deployment, ...] = ("static", "plugin", "here")  # from the easiest


def key_share(extension: Extension, inspection: Inspection) -> float:
    """The query-key pairs of all layers at the target length, over those of full attention.

    1 where every query sees all keys before it; layers with a window of the model's own keep it.
    """
    length, rows = inspection.target_len, torch.arange(inspection.target_len)
    pairs, facts = 0.0, inspection.facts
    for depth, layer in enumerate(inspection.layers):
        local = Extension(reach=layer.reach) if layer.reach else extension.at_layer(depth, facts)
        for part in local.head_parts(facts):
            bounds = [span.bounds(rows) for span in part.extension.reach_or_causal.spans()]
            share = len(part.key_heads) / facts.groups
            pairs += share * sum(int((stop - start).sum()) for start, stop in bounds)
    return pairs / (len(inspection.layers) * length * (length + 1) / 2)


def deployment(subject: Subject, extension: Extension, target_len: int) -> Deployment:
    """Where an extension runs: `static` in vLLM as it is, `plugin` in vLLM with Ropewalk beside it, `here` alone."""
    if extension == Extension():
        return "static"
    host = host_of(subject.model)
    with subject.under(extension) as handle:
        if why_not_exportable(host, handle.extension, handle.layers, ENGINE, target_len) is None:
            return "static"
        return "here" if isinstance(plans_for(host, handle, target_len), DoesNotFit) else "plugin"


# The verdict on one extension, in words: does it use the longer context, or break?


NO_ESTIMATE = Estimate(math.nan, math.nan, math.nan, 0)  # of what could not be measured
# In nats per token. BREAK: a rise that counts as failure; DAMAGE: a rise too small to report.
BREAK, DAMAGE = 0.25, 0.02
SAME_LOSS_ATOL = 1e-4  # two ways of computing the same loss differ by less
BETTER, UNCHANGED, WORSE, BREAKS = "better with context", "unchanged", "worse", "breaks"
NO_BETTER = "no better than a window"  # of the trained length
LOWER = "lower loss"  # in texts that are no longer than that
UNCLEAR = "not enough texts to tell"
FEW = f"{TOO_FEW_PROJECTS} to tell"
NAN, INFINITE = "NaN loss", "infinite loss"  # there is no verdict on such numbers
PASSKEYS, FAR_FACTS = "passkeys", "what is far"  # farther away than the trained length
FINDS = 0.5  # share of passkeys: a model "finds passkeys" if the interval is above it, "misses passkeys" if below


class Verdict(NamedTuple):
    """The result of one candidate in words."""

    kind: str  # one of those above; or why there is none: NAN, INFINITE, no memory
    words: str


def why_not_finite(losses: Sequence[float]) -> str:
    """In words, what is wrong with losses that are no finite numbers; empty where all are."""
    if any(math.isnan(loss) for loss in losses):
        return NAN
    return INFINITE if any(math.isinf(loss) for loss in losses) else ""


def verdict(
    change: Estimate,
    damage: Estimate | None,
    keys: Estimate | None,
    over_window: Estimate = NO_ESTIMATE,
    what: str = PASSKEYS,
) -> Verdict:
    """A verdict is only given where the whole interval supports it."""
    if change.low > BREAK:
        return Verdict(BREAKS, BREAKS)
    kind = _kind(change)
    words = [_beside_a_window(over_window) if kind == BETTER else kind]
    words += [] if keys is None else _found(keys, what)
    if damage is not None and damage.of and not math.isfinite(damage.value):
        words.append(f"{why_not_finite([damage.value])} on short texts")
    elif damage is not None and damage.low > DAMAGE:
        words.append(f"damages short texts ({damage.value:+.2f})")
    return Verdict(words[0], ", ".join(words))


def _found(keys: Estimate, what: str) -> list[str]:
    """Of one kind of fact a judgement, where the interval supports it; of facts all over a text the share."""
    if what == FAR_FACTS:
        return [f"finds {keys.value:.0%} of {what}" if keys.value else f"misses {what}"]
    return [f"finds {what}"] * (keys.low > FINDS) + [f"misses {what}"] * (keys.high < FINDS)


def _beside_a_window(over_window: Estimate) -> str:
    """What a lower loss shows: use of the context only where a window of the trained length has a higher one."""
    if math.isnan(over_window.value):  # the text is no longer than such a window
        return LOWER
    return NO_BETTER if over_window.high >= 0 else BETTER


def _kind(change: Estimate) -> str:
    """The verdict on what does not surely break; unclear where the interval includes 0 and is too wide."""
    if change.why_open == TOO_FEW_PROJECTS:
        return FEW
    if change.high < -SAME_LOSS_ATOL:
        return BETTER
    if change.low > SAME_LOSS_ATOL:
        return WORSE
    return UNCHANGED if change.low > -BREAK and change.high < BREAK else UNCLEAR
