"""The pictures of the front page, drawn from the methods themselves."""

from __future__ import annotations

import math
from pathlib import Path

import matplotlib as mpl
import torch

from ropewalk import Facts, parse
from ropewalk.methods.reach import effective_distances

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.colors import ListedColormap

REACHES = {
    "causal": "reach.causal",
    "window": "window:window=16",
    "sinks (StreamingLLM)": "streaming:window=13,n_sink=3",
    "lambda (LM-Infinite)": "lm_infinite:window=16,n_sink=3",
    "ReRoPE": "rerope:window=16",
    "leaky ReRoPE": "leaky_rerope:window=12,leak=8",
    "Self-Extend": "self_extend:window=12,group=8",
    "dual chunk": "dual_chunk:chunk=24,local=8",
}
SCHEDULES = {
    "as trained": "rope",
    "interpolation": "pi:factor=8",
    "NTK": "ntk:factor=8",
    "NTK mixed": "ntk_mixed:factor=8",
    "by parts (YaRN)": "yarn:factor=8",
    "Llama 3": "llama3:factor=8",
}
LENGTH, TRAINED = 64, 32
STYLES = ["-", "--", ":", "-.", (0, (5, 1)), (0, (3, 1, 1, 1, 1, 1))]


def draw_reach(path: Path) -> None:
    """One panel per reach: grey is a distance the model knows, red one that it never saw."""
    figure, panels = plt.subplots(2, 4, figsize=(12, 6.6), layout="constrained")
    for panel, (title, text) in zip(panels.flat, REACHES.items(), strict=True):
        seen = effective_distances(parse(text).reach_or_causal, torch.arange(LENGTH), torch.arange(LENGTH))
        image = panel.imshow(seen.where(seen < TRAINED, torch.nan), cmap="Greys_r", vmin=0, vmax=TRAINED - 1)
        panel.imshow(seen.where(seen >= TRAINED, torch.nan), cmap=ListedColormap(["#d9534f"]))
        panel.set_title(title)
        panel.set_xticks([0, TRAINED, LENGTH])
        panel.set_yticks([0, TRAINED, LENGTH])
    for panel in panels[:, 0]:
        panel.set_ylabel("query i")
    for panel in panels[1]:
        panel.set_xlabel("key j")
    figure.colorbar(image, ax=panels, label="effective distance of a key (trained up to 31)", shrink=0.8)
    figure.suptitle(f"What a query sees in {LENGTH} tokens, of a model trained on {TRAINED}; red: beyond training")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def draw_frequencies(path: Path) -> None:
    """How much each schedule slows each pair of dimensions at eight trained lengths."""
    facts = Facts(trained_len=4096, head_dim=128)
    figure, panel = plt.subplots(figsize=(9, 4.6), layout="constrained")
    for (title, text), style in zip(SCHEDULES.items(), STYLES, strict=True):
        theta = parse(text).frequencies_or_rope.table(facts, 8 * facts.trained_len).inv_freq
        panel.plot(parse("rope").frequencies_or_rope.table(facts, 1).inv_freq / theta, linestyle=style, label=title)
    turns = facts.trained_len * parse("rope").frequencies_or_rope.table(facts, 1).inv_freq / (2 * math.pi)
    for limit in (32, 1):
        place = int((turns > limit).sum())
        panel.axvline(place, color="grey", linewidth=0.8)
        panel.text(
            place + 0.4, 1.1, f"fewer than {limit}\nturn{'s' * (limit > 1)} trained", fontsize=8, color="dimgrey"
        )
    panel.set(xlabel="pair, fastest first", ylabel="slowed by", yscale="log")
    panel.set_yticks([1, 2, 4, 8], ["1x", "2x", "4x", "8x"])
    panel.minorticks_off()
    panel.legend(loc="upper left")
    panel.set_title("Eight times the trained length: what each schedule does to each pair")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def draw_all(folder: Path) -> None:
    """Every picture."""
    folder.mkdir(exist_ok=True)
    draw_reach(folder / "reach.png")
    draw_frequencies(folder / "frequencies.png")
