"""What the answer of a search must keep to. Importing this loads neither torch nor Optuna."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from ropewalk.errors import UnknownName
from ropewalk.extension.notation import tokens
from ropewalk.methods.record import A_SHARE, NOT_NEGATIVE, POSITIVE, Checked

ANY, STATIC = "any", "static"
ALL, FAR = "all", "far"
USUAL, SCHEDULES, HEADS = "usual", "schedules", "heads"
Deployable = Literal["any", "static", "transformers", "vllm", "sglang", "llama.cpp"]
Objective = Literal["all", "far"]
SearchSpace = Literal["usual", "schedules", "compositions", "heads", "layer_factors"]
LOADERS: tuple[str, ...] = get_args(Deployable)
OBJECTIVES: tuple[str, ...] = get_args(Objective)
SPACES: tuple[str, ...] = get_args(SearchSpace)
KNOWN = {
    "deployable": ("value for ", LOADERS),
    "objective": ("", OBJECTIVES),
    "space": ("", SPACES),
}


@dataclass(frozen=True, kw_only=True)
class Conditions(Checked):
    """What the answer of `rw.fit` must keep to, and which tokens count.

    deployable: any, static, or an engine that must be able to load the answer.
    objective: "all" counts every token; "far" counts only tokens that need distant context: those that the base model
        predicts given its full trained length, but not given an eighth of it.
    max_damage: the largest rise of the loss on short texts, in nats per token.
    min_retrieval: the smallest share of passkeys that are found.
    max_slowdown: the largest time of a text, over that of the base model.
    space: "usual": schedules, reaches and windows. "schedules": schedules and scales only, compared only with hand-set
        extensions of the same kind, so that every token attends to the whole text. "compositions": a reach, a schedule,
        scales, and which layers read the whole text. "heads": which key heads keep all keys, and a factor for each.
        "layer_factors": a factor for each layer.
    also: lines of one's own, such as ("./my.py:Slope:factor=8",), which are tried beside those that are set by hand.
    lengths: shorter ones (512 or "1k") whose loss counts as much as the target's: the mean over all is minimised.
    """

    deployable: Annotated[Deployable, "engine that must be able to load the answer"] = "any"
    objective: Annotated[Objective, "tokens whose loss counts: all, or those that need far context"] = "all"
    max_damage: Annotated[float | None, NOT_NEGATIVE, "largest rise of the loss on short texts, nats"] = None
    min_retrieval: Annotated[float | None, A_SHARE, "smallest share of passkeys found"] = None
    max_slowdown: Annotated[float | None, POSITIVE, "largest time of a text, over that of the base model"] = None
    space: Annotated[SearchSpace, "what is searched; usual: schedules, reaches and windows"] = "usual"
    also: Annotated[tuple[str, ...], "lines that are tried beside those set by hand"] = ()
    lengths: Annotated[tuple[int, ...], "shorter lengths whose loss counts as much as the target's"] = ()

    def __post_init__(self) -> None:
        for name, (kind, known) in KNOWN.items():
            if getattr(self, name) not in known:
                raise UnknownName(f"{kind}{name}", getattr(self, name), known=known)
        object.__setattr__(self, "lengths", tokens("lengths", self.lengths))
        super().__post_init__()
