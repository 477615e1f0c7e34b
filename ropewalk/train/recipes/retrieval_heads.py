"""`retrieval_heads`: learn which key heads of a model need to see far, and keep all keys for these alone.

Source: Xiao et al. 2024 (DuoAttention), arXiv:2410.10819, sec. 2.3; mit-han-lab/duo-attention, train.py, loss.py and
scripts/train.sh. A gate of each key head mixes what the head gives over all keys with what it gives over sinks and a
window; no weight of the model changes:

    out_g = gate_g full_g + (1 - gate_g) streaming_g
    loss  = mean over answers of |h - h_full|^2 / d  +  penalty * mean over heads of |gate_g|

h is the last hidden state at tokens that give the numbers hidden in a text, h_full that of the model itself. Gates
begin at 1 and stay within 0 and 1. The authors': AdamW at 0.02 with a rise and a fall of a fifth of 2,000 steps,
penalty 0.05, 10 numbers in texts of 1,000 to 32,000 tokens, 128 sinks and 256 last keys.

Deviations: hidden states are those that the numbers are predicted from, one token before the authors'; layers with
windows of the model's own have no gates, and stay as they are.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Annotated, Any, ClassVar, NamedTuple

import torch
from rich.progress import track
from torch import Tensor
from transformers import PreTrainedModel

from ropewalk.attention.scoped import scoped
from ropewalk.errors import DoesNotFit, InvalidValue
from ropewalk.extension.extension import Extension
from ropewalk.extension.presets import duo_attention
from ropewalk.files import read_json, read_text
from ropewalk.folders import write_whole
from ropewalk.hf.attach.extend import extended
from ropewalk.hf.attach.handle import Handle
from ropewalk.hf.load_options import UNSTATED, LoadOptions
from ropewalk.hf.probe.facts import trained_len
from ropewalk.hf.runtime.layer import MIXTURES, HeadMixture
from ropewalk.measure.material.secrets import CITIES, with_secrets
from ropewalk.methods.record import A_SHARE, AT_LEAST_ONE, NOT_NEGATIVE, Rule, value_text
from ropewalk.train.data.packs import Passages
from ropewalk.train.data.tokens import TokenizedCorpus, tokenise
from ropewalk.train.recipes.building_blocks import checkpoint
from ropewalk.train.recipes.recipe import Characters, Corpus, Model, RecipeSettings

GATES, STATE, RESULT = "gates.json", "state.json", "extension.json"
SHORTEST = 32  # the longest text over the shortest, as the authors'
LEAST_RATE = 0.1  # of the highest learning rate, at both ends of a training
AS_MANY_AS_CITIES = Rule(f"from 1 to {len(CITIES)}", lambda value: 1 <= value <= len(CITIES))


@dataclass(frozen=True, kw_only=True)
class RetrievalHeadsSettings(RecipeSettings):
    """What heads keep beside those that retrieve, how many these are, and the texts that they are found by."""

    model: Model
    share: Annotated[float, A_SHARE, "share of all key heads that keep all keys"] = 0.5
    window: Annotated[int | None, AT_LEAST_ONE, "last keys that other heads see; nothing means 256, or fewer"] = None
    n_sink: Annotated[int | None, AT_LEAST_ONE, "first keys that other heads see; nothing means 64, or fewer"] = None
    penalty: Annotated[float, NOT_NEGATIVE, "weight of the mean gate in the loss"] = 0.05
    length: Annotated[int | None, AT_LEAST_ONE, "tokens of the longest text; nothing means the trained length"] = None
    numbers: Annotated[int, AS_MANY_AS_CITIES, "numbers hidden in a text"] = 10
    corpus: Corpus = "python"
    characters: Characters = 20_000_000

    plan_defaults: ClassVar[Mapping[str, Any]] = {
        "learning_rate": 0.02,
        "warmup": 0.2,
        "decay": 0.2,
        "weight_decay": 0.0,
        "rows": 1,
    }
    costly: ClassVar[tuple[str, ...]] = (STATE,)


class AskedText(NamedTuple):
    """A text with hidden numbers and their questions at its end, and the tokens whose next one is of an answer."""

    ids_1n: Tensor
    before_answers: list[int]


def retrieval_heads(out: str | Path, settings: RetrievalHeadsSettings, options: LoadOptions = UNSTATED) -> Path:
    """Learn which key heads of a model need to see far (DuoAttention); its weights stay as they are.

    Writes `extension.json`, in which the heads of the largest gates keep all keys: `ropewalk compare MODEL
    OUT/extension.json`. `gates.json` has the same as a line, to which others can be added (`+dynamic_yarn`), and the
    gate of every key head, layer by layer.

    Args:
        out: the folder of the run.
        settings: what other heads keep, how many retrieve, and how long is learned.
        options: how the model is loaded.
    """
    folder, plan = Path(out), settings.plan
    model, tokenizer = checkpoint(settings.model, out, options)
    model.requires_grad_(requires_grad=False)
    length = settings.length or trained_len(model)
    corpus = Passages(
        tokenise(settings.corpus, "train", tokenizer, folder / "corpus", most=settings.characters), length
    )
    with extended(model, Extension(), mode="attention") as handle:
        gated = _gated(handle, settings)
        gates = torch.ones(len(gated.depths), handle.facts.groups, requires_grad=True)
        optimizer = torch.optim.AdamW([gates], lr=plan.learning_rate, weight_decay=plan.weight_decay)
        first = _resume(folder, gates, optimizer)
        steps = range(first, plan.steps)
        for step in track(steps, "learning gates", disable=not plan.progress):
            for group in optimizer.param_groups:
                group["lr"] = plan.learning_rate * _rate(step, plan.steps, plan.warmup, plan.decay)
            for row in range(plan.rows):
                random = Random(f"{plan.seed} {step} {row}")  # the same whenever a run goes on
                text = ask_in(corpus, tokenizer, length, settings.numbers, random)
                loss = distance(model, gated, gates, text) + settings.penalty * gates.abs().mean()
                if not bool(loss.isfinite()):
                    got = f"{float(loss)} at step {step + 1}"
                    raise DoesNotFit("loss", "a finite number", got, remedy="begin anew with a lower learning_rate")
                torch.autograd.backward(loss / plan.rows)
            optimizer.step()
            optimizer.zero_grad()
            with torch.no_grad():
                gates.clamp_(0, 1)
            if (step + 1) % plan.save_every == 0 or step + 1 == plan.steps:
                _save(folder, gates, optimizer, step + 1)
    chosen = strongest(gates, gated, settings.share)
    result = _duo(settings, trained_len(model), gated.layers, gates.shape[1], chosen)
    by_layer = dict(zip(gated.depths, gates.tolist(), strict=True))
    learned = {"line": _line(settings, chosen), "gates": [by_layer.get(depth) for depth in range(gated.layers)]}
    write_whole(folder / GATES, json.dumps(learned) + "\n")
    write_whole(folder / RESULT, json.dumps(result.to_json(), indent=1) + "\n")
    return folder / RESULT


class Gated(NamedTuple):
    """The layers that have gates, of a model with so many, and what their heads see that do not retrieve."""

    depths: tuple[int, ...]
    layers: int
    shared_by: int  # query heads of a key head
    streaming: Extension


def strongest(gates: Tensor, gated: Gated, share: float) -> tuple[int, ...]:
    """The heads of the largest gates, by their numbers in the whole model; of equal ones those of earlier layers."""
    key_heads, count = gates.shape[1], max(1, round(share * gates.numel()))
    order = torch.argsort(gates.detach().flatten(), descending=True, stable=True)[:count].tolist()
    return tuple(sorted(gated.depths[place // key_heads] * key_heads + place % key_heads for place in order))


def _line(settings: RetrievalHeadsSettings, chosen: tuple[int, ...]) -> str:
    """The preset in notation; a model brings its layers, its key heads and its trained length."""
    stated = {"retrieval": chosen, "window": settings.window, "n_sink": settings.n_sink}
    return "duo_attention:" + ",".join(f"{name}={value_text(x)}" for name, x in stated.items() if x is not None)


def ask_in(corpus: TokenizedCorpus, tokenizer: Any, length: int, numbers: int, random: Random) -> AskedText:
    """A passage of a drawn length with hidden numbers, then the questions for all of them with their answers."""
    passage = torch.from_numpy(corpus[random.randrange(len(corpus))].astype("int64"))
    drawn = random.randint(length // SHORTEST, length)
    hidden = with_secrets(tokenizer, passage[:drawn], numbers, random)
    if not hidden.secrets:  # too short for any
        hidden = with_secrets(tokenizer, passage, numbers, random)
    ids, before = hidden.ids_n.tolist(), list[int]()
    for secret in random.sample(hidden.secrets, len(hidden.secrets)):
        ids += secret.question
        before += range(len(ids) - 1, len(ids) - 1 + len(secret.answer))
        ids += secret.answer
    if not before:
        raise InvalidValue("length", "enough tokens to hide a number in", length, remedy="state more, such as 1024")
    return AskedText(torch.tensor([ids]), before)


def distance(model: PreTrainedModel, gated: Gated, gates: Tensor, text: AskedText) -> Tensor:
    """The mean squared distance of the last hidden states, with gates and without, where answers are predicted."""
    ids = text.ids_1n.to(model.device)
    with torch.no_grad():
        whole = _last_hidden(model, ids)[:, text.before_answers]
    with _mixed(gated, gates):
        mixed = _last_hidden(model, ids)[:, text.before_answers]
    return (mixed.float() - whole.float()).square().mean()


def _last_hidden(model: PreTrainedModel, ids: Tensor) -> Tensor:
    answer: Any = model(input_ids=ids, use_cache=False, output_hidden_states=True, logits_to_keep=1)
    hidden: Tensor = answer.hidden_states[-1]
    return hidden


@contextmanager
def _mixed(gated: Gated, gates: Tensor) -> Iterator[None]:
    """Every gated layer mixed with what its heads give over sinks and a window alone."""
    mixtures = {
        depth: HeadMixture(gated.streaming, gate_g.repeat_interleave(gated.shared_by))
        for depth, gate_g in zip(gated.depths, gates.unbind(), strict=True)
    }
    with scoped(MIXTURES, mixtures):
        yield


def _gated(handle: Handle, settings: RetrievalHeadsSettings) -> Gated:
    """The layers without windows of the model's own; refused where these differ in their heads, or there is none."""
    free = [layer for layer in handle.layers if not layer.keeps_window]
    heads = {(layer.facts.heads, layer.facts.groups) for layer in free}
    if len(heads) != 1:
        raise DoesNotFit("model", "one with layers that see the whole text, all with as many heads", sorted(heads))
    streaming = Extension(reach=_duo(settings, handle.facts.trained_len, layers=1, key_heads=1).reach)
    streaming.check_against(handle.facts)
    shared_by = handle.facts.heads // handle.facts.groups
    return Gated(tuple(layer.depth for layer in free), len(handle.layers), shared_by, streaming)


def _duo(
    settings: RetrievalHeadsSettings, known: int, layers: int, key_heads: int, retrieval: tuple[int, ...] = ()
) -> Extension:
    """The preset, with the window and the sinks of the settings."""
    return duo_attention(
        retrieval=retrieval,
        layers=layers,
        key_heads=key_heads,
        window=settings.window,
        n_sink=settings.n_sink,
        trained_len=known,
    )


def _rate(step: int, steps: int, warmup: float, decay: float) -> float:
    """The share of the highest learning rate: it rises, stays and falls in lines."""
    rising, falling = (step + 1) / max(1, warmup * steps), (steps - step) / max(1, decay * steps)
    return min(1.0, max(rising, LEAST_RATE), max(falling, LEAST_RATE))


def _save(folder: Path, gates: Tensor, optimizer: torch.optim.Optimizer, step: int) -> None:
    """The state from which a run goes on: a number for each gate, so that JSON has it whole."""
    moments = {name: x.tolist() for name, x in optimizer.state[gates].items()}
    write_whole(folder / STATE, json.dumps({"step": step, "gates": gates.tolist(), "optimizer": moments}) + "\n")


def _resume(folder: Path, gates: Tensor, optimizer: torch.optim.Optimizer) -> int:
    """Take the state of an earlier run, if there is one; the step to go on with."""
    path = folder / STATE
    if not path.is_file():
        return 0
    rule = "the state of a run of retrieval_heads"
    state = read_json(read_text(path, "out", rule), "out", rule)
    with torch.no_grad():
        gates.copy_(torch.tensor(state["gates"]))
    optimizer.state[gates] = {name: torch.tensor(x) for name, x in state["optimizer"].items()}
    return int(state["step"])
