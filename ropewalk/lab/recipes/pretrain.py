"""`pretrain`: a small model from nothing, under any extension.

The defaults are those that the model which Ropewalk carries was begun with (ropewalk/models/default/README.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ropewalk.corpora import documents
from ropewalk.errors import DoesNotFit
from ropewalk.extension import Extension
from ropewalk.folders import replacing
from ropewalk.hf import convert, extend
from ropewalk.hf.attach.handle import handle_of
from ropewalk.hf.checkpoint.fetch import fetch_tokenizer
from ropewalk.hf.use.save import save_tokenizer
from ropewalk.lab.data.numbering import NumberedRows
from ropewalk.lab.data.packs import PackedRows
from ropewalk.lab.data.vocabulary import learned
from ropewalk.lab.recipes.keeping import keep, packs
from ropewalk.lab.small_models import ModelShape, fresh
from ropewalk.lab.training.train import TrainingPlan, train
from ropewalk.parsing import parse
from ropewalk.reach import Causal, LeakyReRoPE, ReRoPE
from ropewalk.surgery import QKBias

PUZZLES: Mapping[str, float] = {"passkey": 0.18, "named_values": 0.06, "repeats": 0.10, "recall": 0.06}
VOCABULARY_TEXT = 12_000_000  # characters that the vocabulary is learned from


def pretrain(
    out: str | Path,
    plan: TrainingPlan,
    *,
    shape: ModelShape | None = None,
    extension: Extension | str = "",
    corpus: str = "python",
    characters: int = 60_000_000,
    puzzles: Mapping[str, float] = PUZZLES,
    packed: bool = True,
    shared: str | Path | None = None,
) -> PreTrainedModel:
    """Train a fresh model on a corpus with puzzles among it; the same call again goes on where it stopped.

    Under an extension its biases and scales learn with the rest, random positions are drawn, biases on queries and keys
    are added. Rows hold documents one after the other or, not packed, one passage each. `shared` is where the
    tokenizer and the tokenised corpus are, when not in `out`.
    """
    folder, shape, texts = Path(out), shape or ModelShape(), Path(shared or out)
    wanted = extension_for(shape, extension)
    tokenizer = vocabulary_in(texts, corpus, shape.vocabulary)
    rows = packs(
        tokenizer,
        plan,
        texts,
        corpus=corpus,
        characters=characters,
        length=shape.trained_len,
        puzzles=puzzles,
        packed=packed,
    )
    model = begun(shape, wanted, end=tokenizer.eos_token_id, seed=plan.seed)
    trainer = train(model, _numbered(rows, wanted, plan.seed), plan, folder)
    if trainer.state.global_step >= plan.steps and trainer.is_world_process_zero():
        run_under(model, attention_of(wanted))
        keep(model, tokenizer, folder / "model")
    return model


def extension_for(shape: ModelShape, extension: Extension | str) -> Extension:
    """An extension as one, whatever it was given as, if a model of this shape can be trained under it."""
    if isinstance(extension, str):
        text = extension
        extension = parse(text, trained_len=shape.trained_len, layers=shape.layers) if text else Extension()
    if shape.places == "learned" and set(extension.specs) - {"positions"}:
        rule = "positions and nothing else for a table of learned places"
        raise DoesNotFit("extension", rule, ", ".join(extension.specs), remedy="say places=rotary")
    return extension


def begun(shape: ModelShape, extension: Extension, *, end: int = 0, seed: int = 0) -> PreTrainedModel:
    """A fresh model, as it is trained under an extension."""
    limit = getattr(extension.positions, "limit", None) or getattr(extension.positions, "target_len", None)
    model = fresh(shape, end=end, seed=seed, numbers=limit)
    for operation in extension.surgery:
        model = convert(model, operation)
        if isinstance(operation, QKBias):
            _hold_other_biases(model, operation)
    if shape.places == "rotary" and attention_of(extension) != Extension():
        extend(model, without_rerope(attention_of(extension)))
    return model


def run_under(model: PreTrainedModel, extension: Extension) -> None:
    """A trained model under the extension that it is to run under, where that is another, with what it has learned."""
    handle = handle_of(model)
    if handle is not None and handle.extension != extension:
        state = model.state_dict()
        handle.remove()
        extend(model, extension)
        model.load_state_dict(state)


def attention_of(extension: Extension) -> Extension:
    """An extension without what is done to weights, once it is done."""
    return replace(extension, surgery=())


def without_rerope(extension: Extension) -> Extension:
    """An extension as it is trained under: ReRoPE is for what runs beyond the trained length.

    A model that is trained with it does not extrapolate (Su 2023, kexue.fm/9731).
    """
    own = tuple((layer, without_rerope(each)) for layer, each in extension.overrides)
    reach = Causal() if isinstance(extension.reach, ReRoPE | LeakyReRoPE) else extension.reach
    return replace(extension, reach=reach, layers=own)


def _hold_other_biases(model: PreTrainedModel, operation: QKBias) -> None:
    """The biases that a config brings along beside those asked for stay at 0."""
    for name, parameter in model.named_parameters():
        module = name.rsplit(".", 2)[-2]
        if name.endswith(".bias") and module not in operation.modules:
            parameter.requires_grad_(False)


def _numbered(rows: PackedRows, extension: Extension, seed: int) -> Any:
    return rows if extension.positions is None else NumberedRows(rows, extension.positions, seed=seed)


def vocabulary_in(folder: Path, corpus: str, size: int) -> PreTrainedTokenizerBase:
    """The tokenizer of a run: learned at its beginning, read again after."""
    kept = folder / "tokenizer"
    if not (kept / "tokenizer.json").is_file():
        texts = (each.text for each in documents(corpus, "train", most=VOCABULARY_TEXT))
        own = learned(texts, size=size)
        with replacing(kept) as place:
            save_tokenizer(own, place)
    tokenizer: PreTrainedTokenizerBase = fetch_tokenizer(kept)
    return tokenizer
