"""`pretrain`: a small model from random weights, under any extension.

The defaults began the model that comes with Ropewalk (ropewalk/models/default/README.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ropewalk.errors import DoesNotFit
from ropewalk.extension.extension import Extension
from ropewalk.extension.parsing import parse
from ropewalk.folders import replace_files
from ropewalk.hf.attach.extend import extend
from ropewalk.hf.attach.handle import handle_of
from ropewalk.hf.checkpoint.fetch import fetch_tokenizer
from ropewalk.hf.use.convert import convert
from ropewalk.hf.use.save import save_tokenizer
from ropewalk.methods.frequencies import RoPE
from ropewalk.methods.reach import Causal, LeakyReRoPE, ReRoPE
from ropewalk.methods.record import AT_LEAST_ONE, POSITIVE
from ropewalk.methods.surgery import QKBias
from ropewalk.texts.corpora import documents
from ropewalk.train.data.numbering import NumberedRows
from ropewalk.train.data.packs import train_tokenizer
from ropewalk.train.data.puzzles import PuzzleShares
from ropewalk.train.recipes.building_blocks import changes_nothing, train_and_save, training_rows
from ropewalk.train.recipes.recipe import Characters, Corpus, Packed, RecipeSettings
from ropewalk.train.small_models import ModelShape, new_small_model
from ropewalk.train.window_schedule import WINDOW_RATE, WindowSchedule

SHAPE = ModelShape()
PUZZLES = PuzzleShares(passkey=0.18, named_values=0.06, repeats=0.10, recall=0.06)
VOCABULARY_TEXT = 12_000_000  # characters that the vocabulary is learned from


@dataclass(frozen=True, kw_only=True)
class PretrainSettings(RecipeSettings):
    """What a model is trained under and on."""

    extension: Annotated[str, "such as alibi or hwfa; empty for none"] = ""
    packed: Packed = True
    first_window: Annotated[
        int | None, AT_LEAST_ONE, "tokens of a row that see each other in the first step (SkyLadder); without, all do"
    ] = None
    window_rate: Annotated[float, POSITIVE, "tokens by which that grows in a step, up to all"] = WINDOW_RATE
    marked: Annotated[bool, "every text of a row begins with the end token, which can become an attention sink"] = False
    corpus: Corpus = "python"
    characters: Characters = 60_000_000
    shape: ModelShape = SHAPE
    puzzles: PuzzleShares = PUZZLES

    # Small steps bring retrieval sooner than large ones.
    plan_defaults: ClassVar[Mapping[str, Any]] = {"rows": 4, "learning_rate": 1.5e-3}


def pretrain(out: str | Path, settings: PretrainSettings, *, shared: str | Path | None = None) -> PreTrainedModel:
    """Train a new model on a corpus mixed with puzzles; the same call again resumes where it stopped.

    With `first_window`, rows are cut into windows that grow from step to step, and the last steps see whole rows.
    Under an extension, biases and scales are learned with the weights, random positions are drawn, and biases on
    queries and keys are added.

    Args:
        out: the folder of the run; the model is saved in its folder `model`.
        settings: the model's shape, what it is trained on, and how long.
        shared: the folder of the tokenizer and the tokenised corpus, where it is not `out`.
    """
    plan, shape, texts = settings.plan, settings.shape, Path(shared or out)
    extension = extension_for(shape, settings.extension)
    require_another_training(shape, settings.extension, extension)
    tokenizer = vocabulary_in(texts, settings.corpus, shape.vocabulary)
    rows = training_rows(
        tokenizer,
        plan,
        texts,
        corpus=settings.corpus,
        characters=settings.characters,
        length=shape.trained_len,
        puzzles=settings.puzzles,
        packed=settings.packed,
        marked=settings.marked,
    )
    model = new_model(shape, extension, end=tokenizer.eos_token_id, seed=plan.seed)
    numbered: Any = rows
    if settings.first_window is not None:
        numbered = WindowSchedule(rows, plan, first=settings.first_window, rate=settings.window_rate)
    if extension.positions is not None:  # here, since a model whose positions are embeddings is never extended
        numbered = NumberedRows(numbered, extension.positions, seed=plan.seed)
    return train_and_save(
        numbered, model, tokenizer, plan, Path(out), before_saving=lambda: run_under(model, attention_of(extension))
    )


def extension_for(shape: ModelShape, line: str) -> Extension:
    """The extension of a line, refused where a model of this shape cannot be trained under it."""
    extension = parse(line, trained_len=shape.trained_len, layers=shape.layers) if line else Extension()
    if shape.places != "rotary" and set(extension.specs) - {"positions"}:
        rule = f"positions and nothing else for {shape.places} position embeddings"
        raise DoesNotFit("extension", rule, ", ".join(extension.specs), remedy="pass places=rotary")
    return extension


def require_another_training(shape: ModelShape, line: str, extension: Extension) -> None:
    """Refuse an extension under which a model is trained as under none."""
    if extension in (Extension(), Extension(frequencies=RoPE())) or {"surgery", "positions"} & set(extension.specs):
        return
    if changes_nothing(new_small_model(shape), without_rerope(attention_of(extension)), shape.trained_len):
        sentence = f"{line} changes nothing in a model of {shape.layers} layers and texts of {shape.trained_len} tokens"
        raise DoesNotFit.because("extension", sentence, remedy="train it without, then extend it")


def new_model(shape: ModelShape, extension: Extension, *, end: int = 0, seed: int = 0) -> PreTrainedModel:
    """A model with random weights, ready to be trained under an extension.

    Args:
        shape: its size.
        extension: is applied, without what is only for running (`without_rerope`).
        end: the token id that ends a text.
        seed: of the weights.
    """
    limit = getattr(extension.positions, "limit", None) or getattr(extension.positions, "target_len", None)
    model = new_small_model(shape, end=end, seed=seed, numbers=limit)
    for operation in extension.surgery:
        model = convert(model, operation)
        if isinstance(operation, QKBias):
            _hold_other_biases(model, operation)
    if shape.places == "rotary" and attention_of(extension) != Extension():
        extend(model, without_rerope(attention_of(extension)))
    return model


def run_under(model: PreTrainedModel, extension: Extension) -> None:
    """Put a trained model under the extension that it runs under, where it was trained under another; learned weights
    stay."""
    handle = handle_of(model)
    if handle is not None and handle.extension != extension:
        state = model.state_dict()
        handle.remove()
        extend(model, extension)
        model.load_state_dict(state)


def attention_of(extension: Extension) -> Extension:
    """An extension without its surgery, which is done once."""
    return replace(extension, surgery=())


def without_rerope(extension: Extension) -> Extension:
    """The extension to train under: ReRoPE is only for running beyond the trained length.

    A model that is trained with it does not extrapolate (Su 2023, kexue.fm/9731).
    """
    layers, heads = (
        tuple((place, without_rerope(override)) for place, override in overrides)
        for overrides in (extension.layer_items, extension.head_items)
    )
    reach = Causal() if isinstance(extension.reach, ReRoPE | LeakyReRoPE) else extension.reach
    return replace(extension, reach=reach, layers=layers, heads=heads)


def _hold_other_biases(model: PreTrainedModel, operation: QKBias) -> None:
    """Other biases that the config switches on with them stay at 0."""
    for name, parameter in model.named_parameters():
        module = name.rsplit(".", 2)[-2]
        if name.endswith(".bias") and module not in operation.modules:
            parameter.requires_grad_(False)


def vocabulary_in(folder: Path, corpus: str, size: int) -> PreTrainedTokenizerBase:
    """The tokenizer of a run: learned at its beginning, read from its folder later."""
    stored = folder / "tokenizer"
    if not (stored / "tokenizer.json").is_file():
        texts = (document.text for document in documents(corpus, "train", most=VOCABULARY_TEXT))
        with replace_files(stored) as place:
            save_tokenizer(train_tokenizer(texts, size=size), place)
    tokenizer: PreTrainedTokenizerBase = fetch_tokenizer(stored)
    return tokenizer
