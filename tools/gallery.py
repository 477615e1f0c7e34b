"""The gallery: every preset, and every method that no preset uses, with its command and a small picture.

A picture has up to three panels: what a query sees, what each pair of dimensions does, what happens to a logit.
"""

from __future__ import annotations

import io
import re
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
from matplotlib.colors import ListedColormap
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
INTRODUCTION = """\
Generated from the sources by `make docs`. In the left picture a model that was trained on 32 tokens reads 64; in the
others one that was trained on 4,096 reads 32,768.

- **Left: what a query sees.** A row is a query, a column is a key. Grey is a distance that training covered, lighter is
  further. Red is a distance beyond training (a schedule may slow the pairs so that its angles are known all the same).
  White is not seen.
- **Middle: what each pair of dimensions does.** How many times more slowly it rotates, fastest pair first. Pairs on
  grey are not rotated.
- **Right: what happens to a logit.** What is added to it by distance (one line per head), or what it is multiplied by,
  by position."""
NEEDS = {
    "nothing": "Works without training.",
    "tuning": "Needs a short fine-tuning.",
    "training": "For models trained with it.",
}


def gallery_page() -> str:
    """Every preset and every lone method: its idea, its command, its picture."""
    parts = [
        "# Gallery",
        INTRODUCTION,
        "## Presets",
    ]
    for preset in presets.ALL:
        name = preset.__name__
        page = page_of(preset)
        parts += _entry(name, name, page.idea, NEEDS[needs(name)])
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
    figure, panels = plt.subplots(1, 3, figsize=(8.4, 2.4), layout="constrained")
    small, large = (
        parse(line, trained_len=TRAINED, target_len=READ, layers=SMALL.layers, key_heads=SMALL.groups),
        _parsed(line, LARGE),
    )
    lower = next(layer for layer in range(SMALL.layers) if layer not in dict(small.layer_items))  # as most layers are
    _draw_reach(panels[0], small.at_layer(lower, SMALL), "a lower layer" if small.layer_items else "a query")
    _draw_pairs(panels[1], large.at_layer(lower, LARGE))
    _draw_logit(panels[2], large.at_layer(lower, LARGE))
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=80, format="png")
    plt.close(figure)
    Image.open(drawn).convert("RGB").quantize(48).save(path, optimize=True)


def _draw_reach(panel: Axes, extension: Extension, who: str) -> None:
    places = torch.arange(READ)
    seen = effective_distances(extension.reach_or_causal, places, places)
    known, new = (seen.where(mask, torch.nan).numpy() for mask in (seen < TRAINED, seen >= TRAINED))
    panel.imshow(known, cmap="Greys_r", vmin=0, vmax=1.25 * TRAINED)
    panel.imshow(new, cmap=ListedColormap(["#d9534f"]))
    panel.set_xticks([0, TRAINED, READ])
    panel.set_yticks([0, TRAINED, READ])
    panel.set_title(f"what {who} sees", fontsize=9)


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
    panel.plot(pairs, slowed, color="#2f6fb0")
    first, count = int(pairs[-1]) + 1, LARGE.head_dim // 2
    if first < count:
        panel.axvspan(first - 0.5, count, color="0.9")
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
        panel.plot(places, torch.exp(decay[::8, None] * places).T, color="#7a4fa3", linewidth=0.9)
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
