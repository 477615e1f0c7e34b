"""The zoo's results as a page: tables with their spread, the sources' figures beside them, a verdict on every claim."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

# Next-token accuracy in percent as the sources give it, for models trained at 512: at 1x, 2x, 4x, 8x, and 8x repeated.
SOURCES = {
    "rope": ("kexue.fm/9577; 9708", (52.37, 33.15, 22.85, 17.87), 24.17),
    "qk_bias": ("kexue.fm/9577", (52.75, 50.99, 45.25, 39.55), None),
    "hwfa": ("kexue.fm/9603", (48.70, None, None, 48.15), 80.84),
    "hwfa_rerope": ("kexue.fm/9731", (49.46, None, None, 49.36), 84.43),
    "key_norm": ("kexue.fm/9859", (None, None, None, 47.69), 61.08),
}
LEARNED = 0.1  # accuracy at 1x below which a model is evidence for no claim
FLAT = 0.015  # accuracy that a method may lose at 8x and still count as losing nothing


class ZooFigures:
    """The measurements, by method, seed, kind and length."""

    def __init__(self, models: list[dict[str, Any]]) -> None:
        self._of = {
            (model["method"], model["seed"], row["kind"], row["times"]): row
            for model in models
            for row in model["figures"]
        }
        self.methods = list(dict.fromkeys(model["method"] for model in models))
        self.seconds = {name: [m["cpu_seconds"] for m in models if m["method"] == name] for name in self.methods}

    def seeds(self, *methods: str) -> list[int]:
        """Seeds for which all of these methods are measured."""
        of_methods = [{seed for method, seed, *_ in self._of if method == name} for name in methods]
        return sorted(set.intersection(*of_methods)) if of_methods else []

    def at(self, method: str, seed: int, times: int, kind: str = "non-repeated", what: str = "accuracy") -> float:
        """One figure."""
        return float(self._of[method, seed, kind, times][what])

    def all(self, method: str, times: int, kind: str, what: str = "accuracy") -> list[float]:
        """One figure for every seed."""
        return [self.at(method, seed, times, kind, what) for seed in self.seeds(method)]


class Claim(NamedTuple):
    """A claim of a source, and whether the figures of one seed confirm it."""

    text: str
    source: str
    methods: tuple[str, ...]
    holds: Callable[[ZooFigures, int], bool]


def _flat(method: str) -> Callable[[ZooFigures, int], bool]:
    return lambda ours, seed: ours.at(method, seed, 8) >= ours.at(method, seed, 1) - FLAT


def _better(method: str, than: str, kind: str = "non-repeated") -> Callable[[ZooFigures, int], bool]:
    return lambda ours, seed: ours.at(method, seed, 8, kind) > ours.at(than, seed, 8, kind)


def _higher(method: str, than: str) -> Callable[[ZooFigures, int], bool]:
    return lambda ours, seed: all(ours.at(method, seed, times) > ours.at(than, seed, times) for times in (2, 4, 8))


def _looks_back(method: str) -> Callable[[ZooFigures, int], bool]:
    return lambda ours, seed: ours.at(method, seed, 8, "repeated") > ours.at(method, seed, 1, "repeated") + FLAT


CLAIMS = (
    Claim("Bare RoPE fails beyond its length: at 8x a third of its accuracy is left.", "kexue.fm/9577", ("rope",),
          lambda ours, seed: ours.at("rope", seed, 8) < ours.at("rope", seed, 1) / 2),
    Claim("With biases on queries and keys accuracy falls later than without: it is higher at 2x, 4x and 8x.",
          "kexue.fm/9577", ("qk_bias", "rope"), _higher("qk_bias", "rope")),
    Claim("With biases on queries and keys three quarters of the accuracy stay at 8x (the author: hard to reproduce).",
          "kexue.fm/9577", ("qk_bias",),
          lambda ours, seed: ours.at("qk_bias", seed, 8) > ours.at("qk_bias", seed, 1) * 2 / 3),
    Claim("HWFA loses about half a point at 8x.", "kexue.fm/9603", ("hwfa",), _flat("hwfa")),
    Claim("HWFA uses far text: repeated text becomes easier with length.", "kexue.fm/9603", ("hwfa",),
          _looks_back("hwfa")),
    Claim("With ReRoPE in its full layers HWFA loses nothing at 8x.", "kexue.fm/9731", ("hwfa_rerope",),
          _flat("hwfa_rerope")),
    Claim("It uses far text better than HWFA.", "kexue.fm/9731", ("hwfa_rerope", "hwfa"),
          _better("hwfa_rerope", "hwfa", "repeated")),
    Claim("ALiBi loses nothing at 8x.", "arXiv:2108.12409", ("alibi",), _flat("alibi")),
    Claim("KERPLE loses nothing at 8x.", "arXiv:2205.09921", ("kerple",), _flat("kerple")),
    Claim("Sandwich loses nothing at 8x.", "arXiv:2212.10356", ("sandwich",), _flat("sandwich")),
    Claim("XPos with blockwise attention loses nothing at 8x.", "arXiv:2212.10554", ("xpos",), _flat("xpos")),
    Claim("A window whose layers together reach no further than the trained length loses nothing at 8x.",
          "kexue.fm/9431", ("window",), _flat("window")),
    Claim("Random positions on a rotary model beat plain rotation at 8x.", "arXiv:2305.16843",
          ("randomized_rotary", "rope"), _better("randomized_rotary", "rope")),
    Claim("Random positions on learned ones beat plain rotation at 8x.", "kexue.fm/9444",
          ("randomized_learned", "rope"), _better("randomized_learned", "rope")),
    Claim("No positions at all beat plain rotation at 8x.", "arXiv:2305.19466", ("nope", "rope"),
          _better("nope", "rope")),
    Claim("log-n, trained in, beats plain rotation at 8x.", "kexue.fm/8823", ("log_n", "rope"),
          _better("log_n", "rope")),
    Claim("Norms on keys are higher than plain rotation at 2x, 4x and 8x.", "kexue.fm/9859", ("key_norm", "rope"),
          _higher("key_norm", "rope")),
    Claim("With norms on keys nothing is lost at 8x.", "kexue.fm/9859", ("key_norm",), _flat("key_norm")),
)  # fmt: skip


def zoo_page(results: Mapping[str, Any]) -> str:
    """The results of `ropewalk train zoo` as a page."""
    ours = ZooFigures(results["models"])
    parts = ["# The zoo: one small model under each trained-in method", _setting(results, ours)]
    for what, unit in (("accuracy", "Next-token accuracy in percent"), ("loss", "Loss in nats per token")):
        for kind in ("non-repeated", "repeated"):
            parts += [f"## {unit}, {kind}", _table(ours, kind, what)]
    parts += ["## What the sources claim", *(f"- {_verdict(claim, ours)}" for claim in CLAIMS)]
    return "\n\n".join(parts) + "\n"


def _setting(results: Mapping[str, Any], ours: ZooFigures) -> str:
    plan, shape, read = results["plan"], results["shape"], results["read"]
    tokens = plan["steps"] * plan["rows"] * plan["accumulate"] * shape["trained_len"]
    seconds = [second for of_method in ours.seconds.values() for second in of_method]
    puzzles = ", ".join(f"{share:.0%} {name}" for name, share in read["puzzles"].items()) or "no puzzles"
    return (
        f"Generated by `ropewalk train zoo`. Each model: {shape['layers']} layers, {shape['width']} wide, "
        f"{shape['heads']} heads, vocabulary {shape['vocabulary']}, trained on {tokens / 1e6:.1f} M tokens of "
        f"`{read['corpus']}` ({puzzles}) in rows of {shape['trained_len']}, in {statistics.median(seconds):.0f} s of "
        f"one core (median). Measured on {read['texts']} held-out texts: non-repeated, the same tokens at every "
        f"length, as fewer and longer texts; repeated, their first {shape['trained_len']} tokens repeated. Figures are "
        "means over the tokens of whole texts and over seeds, with the spread from the lowest to the highest seed. "
        "Sources trained larger models at 512: compare the shape of their figures, not the values. key_norm is a Qwen3 "
        "(norms on queries as well), randomized_learned a GPT-2, all others are Llamas."
    )


def _table(ours: ZooFigures, kind: str, what: str) -> str:
    heads = [f"{times}x" for times in (1, 2, 4, 8)]
    stated = what == "accuracy"
    lines = [f"| method | seeds | {' | '.join(heads)} |" + (" sources |" if stated else "")]
    lines.append("|---|---|---|---|---|---|" + ("---|" if stated else ""))
    for name in ours.methods:
        cells = [_cell(ours.all(name, times, kind, what), percent=stated) for times in (1, 2, 4, 8)]
        row = f"| {name} | {len(ours.seeds(name))} | {' | '.join(cells)} |"
        lines.append(row + (f" {_stated(name, kind)} |" if stated else ""))
    return "\n".join(lines)


def _cell(values: list[float], *, percent: bool) -> str:
    scale, digits = (100, 1) if percent else (1, 2)
    mean, low, high = (scale * number for number in (statistics.fmean(values), min(values), max(values)))
    return f"{mean:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})" if len(values) > 1 else f"{mean:.{digits}f}"


def _stated(name: str, kind: str) -> str:
    """The source's figures for the method, 512 to 4,096."""
    if name not in SOURCES:
        return ""
    source, plain, repeats = SOURCES[name]
    if kind == "repeated":
        return f"8x {repeats} ({source})" if repeats else ""
    return " / ".join("-" if share is None else f"{share:.2f}" for share in plain) + f" ({source})"


def _verdict(claim: Claim, ours: ZooFigures) -> str:
    """Reproduced, not reproduced, or in how many seeds; with the figures."""
    seeds = ours.seeds(*claim.methods) if set(claim.methods) <= set(ours.methods) else []
    if not seeds:
        return f"{claim.text} ({claim.source}): not measured."
    if any(ours.at(name, seed, 1) < LEARNED for name in claim.methods for seed in seeds):
        return f"{claim.text} ({claim.source}): **not judged**: the models have learned too little."
    held = sum(claim.holds(ours, seed) for seed in seeds)
    word = {len(seeds): "reproduced", 0: "not reproduced"}.get(held, f"in {held} of {len(seeds)} seeds")
    figures = "; ".join(_figures_of(name, ours) for name in claim.methods)
    return f"{claim.text} ({claim.source}): **{word}**. {figures}."


def _figures_of(name: str, ours: ZooFigures) -> str:
    plain = [_cell(ours.all(name, times, "non-repeated"), percent=True) for times in (1, 8)]
    again = [_cell(ours.all(name, times, "repeated"), percent=True) for times in (1, 8)]
    return f"{name}: {plain[0]} at 1x, {plain[1]} at 8x; repeated {again[0]}, {again[1]}"
