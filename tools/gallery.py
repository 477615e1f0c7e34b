"""The gallery: every preset, and every method that no preset uses, with its command and a small picture.

A picture has up to three panels: what a query sees, what each pair of dimensions does, what happens to a logit.
"""

from __future__ import annotations

import inspect
import io
import math
import re
from collections.abc import Callable
from pathlib import Path

import matplotlib as mpl
import torch

from ropewalk import Extension, Facts, parse
from ropewalk.extension import presets
from ropewalk.extension.presets import needs
from ropewalk.extension.slots import SLOTS
from ropewalk.methods.docstrings import page_of
from ropewalk.methods.reach import effective_distances

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from PIL import Image

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "pictures" / "gallery"
READ, TRAINED = 64, 32  # tokens of the drawn text, and of training
SMALL = Facts(trained_len=TRAINED, head_dim=64, heads=8, layers=4)
LARGE = Facts(trained_len=4096, head_dim=128, heads=8, layers=4)
TARGET = 8 * LARGE.trained_len
ALONE = (  # methods that no preset uses
    *("ntk_old:factor=8", "ntk_fixed:factor=8", "partial:share=0.5", "cope", "resonance", "kerple_power"),
    "chunks:chunk=16",
    *("temperature:value=1.3", "deepseek_temperature:factor=8,mscale=0.7,mscale_all_dim=0.2", "head_scale"),
    *("max_pooling", "positional_contrast:beta=1,new_base=1000", "ape"),
)
# Between black and white: to be read on both.
INK, KNOWN, NEW = "#808389", (0.36, 0.52, 0.74), (0.87, 0.32, 0.30)
INKED = ("text.color", "axes.edgecolor", "axes.labelcolor", "axes.titlecolor", "xtick.color", "ytick.color")
INTRODUCTION = """\
Generated from the sources by `make docs`. In the left picture a model that was trained on 32 tokens reads 64; in the
others one that was trained on 4,096 reads 32,768. Where layers differ, the upper row is some of them, and the lower row
the others.

- **Left: what a query sees.** A row is a query, a column is a key. Blue is what training covered; the paler, the
  further. Red is where pairs of dimensions meet angles that are new to them under the method: the stronger, the more
  pairs. A pair that completes a rotation within the trained length knows all angles. One that does not knows those up
  to its last one there, and a method may slow it, or show it smaller distances, so that it stays below that. What
  has no color is not seen.
- **Middle: what each pair of dimensions does.** How many times more slowly it rotates, fastest pair first. Pairs on
  grey are not rotated.
- **Right: what happens to a logit.** What is added to it by distance (one line per head), or what it is multiplied by,
  by position."""
NEEDS = {
    "nothing": "Applies without training.",
    "tuning": "Needs a short fine-tuning.",
    "training": "For models trained with it.",
}


SEES_LESS = {"window", "blockwise", "sinks", "lambda_mask"}
GROUPS = {  # of presets, with what their members have in common
    "Slower rotation": "Pairs of dimensions rotate more slowly, so that far keys are at angles that training had.",
    "Fewer dimensions rotate": "What does not rotate knows no position, and meets no new angle.",
    "Less weight for far keys": "What is added to a logit falls with the distance, or the key itself is shrunk by it.",
    "A query sees fewer keys": "The rest is forgotten: nothing is at a distance that training did not have.",
    "Far keys are shown nearer": "A query sees all keys, the far ones at distances that training had.",
    "Layers or heads differ": "Some keep all keys or rotate as trained, and the others do not.",
    "Sharper or softer attention": "Logits are multiplied, since more keys share the weight.",
    "Other numbers in training": "Tokens of short rows get the numbers of long ones.",
    "Changed weights": "The checkpoint is changed before it runs.",
    "Several contexts": "Texts are read apart, and their predictions or their keys are combined.",
}


def _group(preset: Callable[..., Extension]) -> str:
    """What a preset changes most."""
    extension = _parsed(preset.__name__, LARGE)
    by_head = "key_heads" in inspect.signature(preset).parameters
    used = {slot: {spec.name for spec in specs} for slot, specs in extension.specs.items()}
    found = [
        ("Several contexts", "decoding" in used),
        ("Changed weights", "surgery" in used),
        ("Other numbers in training", "positions" in used),
        ("Layers or heads differ", by_head or bool(list(extension.layer_items))),
        ("A query sees fewer keys", bool(used.get("reach", set()) & SEES_LESS)),
        ("Far keys are shown nearer", "reach" in used),
        ("Less weight for far keys", "biases" in used or used.get("frequencies") == {"xpos"}),
        ("Fewer dimensions rotate", bool(used.get("frequencies", set()) & {"none", "partial"})),
        ("Slower rotation", "frequencies" in used),
    ]
    return next((title for title, is_so in found if is_so), "Sharper or softer attention")


def gallery_page() -> str:
    """Every preset and every lone method: its idea, its command, its picture."""
    parts = [
        "# Gallery",
        INTRODUCTION,
    ]
    groups = dict[str, list[Callable[..., Extension]]]({title: [] for title in GROUPS})
    for preset in presets.ALL:
        groups[_group(preset)].append(preset)
    links = (f"[{title}](#{title.lower().replace(' ', '-')})" for title in GROUPS)
    parts.append(f"Presets by what they change: {', '.join(links)}.")
    for title, members in groups.items():
        parts += [f"## {title}", GROUPS[title]]
        for preset in members:
            name, page = preset.__name__, page_of(preset)
            parts += _entry(name, name, page.idea, "" if "tun" in page.idea else NEEDS[needs(name)])
    parts.append("## Methods that no preset uses")
    for line in ALONE:
        parts += _entry(line.split(":")[0], line, page_of(_method(line)).idea, "")
    parts.append(
        "`frequencies.longrope` has a divisor for each pair of one model, and `frequencies.by_shares` a power of the "
        "factor, found by a search; `studies/results/fit` has some."
    )
    return "\n\n".join(parts) + "\n"


def _entry(name: str, line: str, idea: str, note: str) -> list[str]:
    picture = f"![{name}](pictures/gallery/{name}.png)" if _drawable(_parsed(line, LARGE)) else _undrawn(line)
    command = f"`ropewalk show {line}{'' if ':' in line else ' --trained-len 4k --to 32k'}`"
    return [f"### {name}", f"{idea} {note}".strip(), picture, command]


def _undrawn(line: str) -> str:
    """What stands where nothing can be drawn."""
    return {
        "surgery": "It changes weights before the model runs; the formula stays.",
        "decoding": "It combines several contexts, or readings of one text; the formula within one stays.",
        "positions": "It numbers the tokens of training rows with gaps; afterwards the formula is the base model's.",
    }[next(iter(_parsed(line, LARGE).specs))]


def used_methods() -> set[str]:
    """Every method that the gallery shows, as slot.name."""
    used = set()
    for line in (*(preset.__name__ for preset in presets.ALL), *ALONE):
        extension = _parsed(line, LARGE)
        for part in (extension, *(inner for _, inner in extension.layer_items)):
            used |= {f"{slot}.{spec.name}" for slot, specs in part.specs.items() for spec in specs}
    searched = {"frequencies.longrope", "frequencies.by_shares"}
    return used | searched | {"reach.causal", "positions.sequential"}  # the latter are what an empty slot is


def _method(line: str) -> type:
    name = line.split(":")[0]
    return next(method for _, methods, *_ in SLOTS.values() for method in methods if method.name == name)


def _parsed(line: str, facts: Facts) -> Extension:
    return parse(
        line,
        trained_len=facts.trained_len,
        target_len=8 * facts.trained_len,
        layers=facts.layers,
        key_heads=facts.groups,
    )


def _drawable(extension: Extension) -> bool:
    return bool(set(extension.specs) & {"frequencies", "reach", "biases", "scales"}) or not extension.specs


def draw_gallery(folder: Path = FOLDER) -> None:
    """Every picture, as a PNG of few colours."""
    folder.mkdir(parents=True, exist_ok=True)
    for line in (*(preset.__name__ for preset in presets.ALL), *ALONE):
        if _drawable(_parsed(line, LARGE)):
            _draw(line, folder / f"{line.split(':')[0]}.png")


def _draw(line: str, path: Path) -> None:
    small, large = (
        parse(line, trained_len=TRAINED, target_len=READ, layers=SMALL.layers, key_heads=SMALL.groups),
        _parsed(line, LARGE),
    )
    lower = next(layer for layer in range(SMALL.layers) if layer not in dict(small.layer_items))  # as most layers are
    layers = [lower, *list(dict(small.layer_items))[:1]]
    with mpl.rc_context(dict.fromkeys(INKED, INK)):
        figure, rows = plt.subplots(
            len(layers), 3, figsize=(8.4, 2.4 * len(layers)), layout="constrained", squeeze=False
        )
        for layer, panels in zip(layers, rows, strict=True):
            who = "a query" if len(layers) == 1 else "some layers" if layer == lower else "the others"
            _draw_reach(panels[0], small.at_layer(layer, SMALL), who)
            _draw_pairs(panels[1], large.at_layer(layer, LARGE))
            _draw_logit(panels[2], large.at_layer(layer, LARGE))
        drawn = io.BytesIO()
        figure.savefig(drawn, dpi=80, format="png", transparent=True)
        plt.close(figure)
    Image.open(drawn).convert("RGBA").quantize(64, method=Image.Quantize.FASTOCTREE).save(path, optimize=True)


def _draw_reach(panel: Axes, extension: Extension, who: str) -> None:
    places = torch.arange(READ)
    seen = effective_distances(extension.reach_or_causal, places, places)
    new = _share_of_new_pairs(extension)
    shown = torch.zeros(READ, READ, 4, dtype=torch.float64)
    shown[..., :3] = torch.where((new > 0)[..., None], torch.tensor(NEW), torch.tensor(KNOWN))
    pale = 0.95 - 0.7 * (seen / TRAINED).clamp(max=1)
    shown[..., 3] = torch.where(new > 0, 0.45 + 0.5 * new, pale).where(~seen.isnan(), 0.0)
    panel.imshow(shown.numpy(), interpolation="nearest")
    panel.set_xticks([0, TRAINED, READ])
    panel.set_yticks([0, TRAINED, READ])
    panel.set_title(f"what {who} see{'s' if who == 'a query' else ''}", fontsize=9)


def _share_of_new_pairs(extension: Extension) -> torch.Tensor:
    """Of the pairs that training did not turn round, how many meet a new angle at each key that is seen."""
    now = extension.frequencies_or_rope.table(SMALL, READ).inv_freq
    trained = parse("rope").frequencies_or_rope.table(SMALL, 1).inv_freq[: len(now)]  # a partial rotation has fewer
    places, turns = torch.arange(READ), extension.turns(SMALL)
    angles = torch.zeros(READ, READ, len(now), dtype=torch.float64)
    for span in extension.reach_or_causal.spans():
        start, stop = span.bounds(places)
        inside = (start[:, None] <= places) & (places < stop[:, None])
        queries = span.q_rotated(places, turns).double().reshape(READ, -1)  # one for each pair where pairs differ
        keys = span.k_rotated(places, turns).double().reshape(READ, -1)
        asked = (queries[:, None] - keys[None] + 1) * now
        angles = torch.where(inside[..., None], asked, angles)
    narrow = trained * TRAINED < 2 * math.pi
    new = narrow & (angles > trained * TRAINED * (1 + 1e-9))
    return new.sum(-1) / narrow.sum()


def _draw_pairs(panel: Axes, extension: Extension) -> None:
    trained = parse("rope").frequencies_or_rope.table(LARGE, 1).inv_freq
    now = extension.frequencies_or_rope.table(LARGE, TARGET).inv_freq
    panel.set_title("each pair is slowed by", fontsize=9)
    if not now.any():
        panel.text(0.5, 0.5, "no rotation", ha="center", va="center", transform=panel.transAxes)
        panel.set_xticks([])
        panel.set_yticks([])
        return
    pairs = torch.arange(len(now))[now > 0]
    slowed = (trained[: len(now)] / now)[now > 0]
    panel.plot(pairs, slowed, color="#4a86c5")
    first, count = int(pairs[-1]) + 1, LARGE.head_dim // 2
    if first < count:
        panel.axvspan(first - 0.5, count, color=INK, alpha=0.25)
    if count - first > count // 8:
        panel.text((first + count) / 2, 2.8, "not rotated", rotation=90, ha="center", va="center", fontsize=8)
    panel.set(xlim=(0, count), ylim=(0.8, max(10.0, 1.2 * float(slowed.max()))))
    panel.set_yscale("log")
    panel.set_yticks([1, 2, 4, 8], ["1", "2", "4", "8"])
    panel.minorticks_off()


def _draw_logit(panel: Axes, extension: Extension) -> None:
    places = torch.arange(1, TARGET + 1, TARGET // 256)
    weights = extension.weights(LARGE, torch.Generator().manual_seed(0))
    decay = extension.frequencies_or_rope.table(LARGE, TARGET).log_decay
    if extension.biases:
        last = torch.full_like(places, TARGET)
        parts = [spec.bias(places, last, LARGE, weights.get(spec.name, {})) for spec in extension.biases]
        added = torch.stack(parts).sum(0).detach()
        panel.plot(places, added.expand(LARGE.heads, -1).T, color="#c98b00", linewidth=0.9)
        panel.set_title("added to a logit, by distance", fontsize=9)
    elif decay.any():
        panel.plot(places, torch.exp(decay[::8, None] * places).T, color="#9a70c4", linewidth=0.9)
        panel.set_title("a pair's product decays, by distance", fontsize=9)
    else:
        factors = torch.ones(1, len(places), dtype=torch.float64)
        for spec in extension.scales:
            factors = factors * spec.scale(places, LARGE, weights.get(spec.name, {})).detach()
        panel.plot(places, factors[0], color="#2a9d8f")
        panel.set_ylim(0.9, max(1.6, float(factors.max()) * 1.1))
        panel.set_title("a logit is multiplied by", fontsize=9)
    panel.axvline(LARGE.trained_len, color="grey", linewidth=0.6)
    panel.set_xticks([LARGE.trained_len, TARGET], ["4k", "32k"])


def pictures_named(page: str) -> list[str]:
    """The files that a page shows."""
    return re.findall(r"\]\((pictures/[^)]+)\)", page)


if __name__ == "__main__":
    draw_gallery()
