"""The front page's picture: loss by position of the carried model, measured on this machine's own held-out text.

python tools/results_picture.py   minutes
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import matplotlib as mpl
import torch
from transformers import AutoTokenizer

from ropewalk import extended, load, score
from ropewalk.models import DEFAULT
from ropewalk.texts.corpora import documents, projects_in_turn

mpl.use("Agg")
from matplotlib import pyplot as plt

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "pictures" / "results.png"
RESULTS = {
    "base model": "rope",
    "position interpolation": "pi",
    "YaRN": "yarn",
    "StreamingLLM": "streaming",
    "Self-Extend": "self_extend",
    "ReRoPE + log n": "rerope+log_n",
}
TEXTS, READ, BIN = 24, 4096, 128  # texts, tokens of each, tokens that one point averages


def losses_by_position() -> dict[str, torch.Tensor]:
    """The mean loss of each bin of positions, in nats per token, of held-out text of the standard library."""
    model, tokenizer = load(DEFAULT), AutoTokenizer.from_pretrained(DEFAULT)
    encoded = ((document.name, tokenizer(document.text).input_ids) for document in documents("stdlib", "held out"))
    long = (ids for _, ids in islice(projects_in_turn(one for one in encoded if len(one[1]) > READ), TEXTS))
    ids = torch.tensor([ids[: READ + 1] for ids in long])
    means = {}
    for title, line in RESULTS.items():
        with extended(model, line, target_len=READ):
            losses = torch.cat([score(model, row[None]) for row in ids])
        means[title] = losses.view(len(ids), READ // BIN, BIN).mean(dim=(0, 2))
        print(title, len(ids), [round(float(loss), 2) for loss in means[title][:: READ // BIN // 8]])
    return means


def draw_results(path: Path) -> None:
    """Loss by position: what five methods make of a model that was trained on 512 tokens."""
    figure, panel = plt.subplots(figsize=(9, 4.4), layout="constrained")
    trained_len, places = 512, torch.arange(READ // BIN) * BIN + BIN / 2
    styles = ["-", "--", "-.", ":", (0, (5, 1)), "-"]
    colours = ["#b03030", "#c98b00", "#2f6fb0", "#777777", "#2a9d8f", "#1b4332"]
    for (title, means), style, colour in zip(losses_by_position().items(), styles, colours, strict=True):
        panel.plot(places, means, linestyle=style, color=colour, label=title, linewidth=1.8)
    panel.axvline(trained_len, color="grey", linewidth=0.8)
    panel.text(trained_len + 25, panel.get_ylim()[1] * 0.97, "trained length", fontsize=9, color="dimgrey", va="top")
    panel.set(xlabel="position of the token in its text", ylabel="loss, nats per token", xlim=(0, READ))
    panel.set_xticks([512, 1024, 2048, 3072, 4096])
    panel.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    panel.set_title("A model trained on 512 tokens reads texts of 4,096")
    panel.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    draw_results(PICTURE)
