"""What a caller of `rw.compare` and its kin passes, refused before a model is loaded."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from numbers import Integral
from typing import Any, TypeVar

from ropewalk.errors import InvalidValue
from ropewalk.extension.notation import duration
from ropewalk.hf.load_options import LoadOptions, require_named
from ropewalk.measure.progress import Shown

FEWEST_TEXTS = 2  # of an interval
UNLIMITED = "none"
AnyRunOptions = TypeVar("AnyRunOptions", bound="RunOptions")


@dataclass(frozen=True)
class RunOptions(LoadOptions):
    """How a measurement runs: how its model is loaded, as in `LoadOptions`, and who measures it.

    tokenizer: the model's; by default the one beside its weights.
    workers: the number of measuring processes; 0 chooses a number that suits the model.
    ray: the address of a Ray cluster that measures.
    progress: True shows a bar in a terminal or a notebook; "lines" prints the plan, and progress lines where there is
        no terminal; False shows nothing.
    after_round: called with the result so far, after each round of a comparison.
    """

    tokenizer: Any = None
    workers: int = 1
    ray: str = ""
    progress: Shown = True
    after_round: Callable[[Any], None] | None = None

    @classmethod
    def of(cls: type[AnyRunOptions], options: LoadOptions, **more: Any) -> AnyRunOptions:
        """Options of loading with those of running, which are the defaults where they are not passed."""
        return cls(
            **{field.name: getattr(options, field.name) for field in fields(cls) if hasattr(options, field.name)} | more
        )

    def check(self, model: Any, *, least_workers: int = 0, unused: Sequence[str] = ()) -> None:
        """Refuse what does not suit the model, and what the caller's function does not use."""
        whole_number("workers", self.workers, least=least_workers)
        require_named(model, self)
        for field in fields(self):
            if field.name in unused and getattr(self, field.name) != field.default:
                sentence = f"this function does not use {field.name}"
                raise InvalidValue.because(field.name, sentence, remedy=f"leave {field.name} out")


def whole_number(name: str, value: object, *, least: int) -> int:
    """A whole number from `least` on: of texts, or of processes."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise InvalidValue(name, f"a whole number, at least {least}", value)
    if value < least:
        raise InvalidValue(name, f"at least {least}", value)
    return int(value)


def tasks_text(value: object) -> str:
    """Tasks in one text, as on the command line."""
    if not isinstance(value, str):
        raise InvalidValue("tasks", 'a comma-separated string, such as "context,passkey"', value)
    return value


def seconds(name: str, value: object) -> float | None:
    """A time above 0, in seconds or as "20m"; None where the caller says nothing."""
    if value is None or value == "":
        return None
    if isinstance(value, str):
        return duration(value, name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise InvalidValue(name, 'a positive time, in seconds or as a string such as "20m"', value)
    return float(value)


def seconds_or_none(name: str, value: object) -> float | None:
    """A time as in `seconds`; infinity for "none"."""
    return math.inf if value == UNLIMITED else seconds(name, value)
