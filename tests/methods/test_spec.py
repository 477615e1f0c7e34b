"""Methods as records: one line for the command line, and building from named values."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import pytest

from ropewalk import InvalidValue, UnknownName
from ropewalk.methods.frequencies import NTK, Dynamic
from ropewalk.methods.record import AT_LEAST_ONE
from ropewalk.methods.spec import Spec, build


@dataclass(frozen=True, kw_only=True)
class Sample(Spec):
    name: ClassVar[str] = "sample"
    size: Annotated[int, AT_LEAST_ONE, "how many"]
    share: float = 0.5
    kind: Literal["plain", "fancy"] = "plain"
    maybe: int | None = None
    list: tuple[float, ...] = ()
    flag: bool = False


def test_text_names_what_differs_from_the_defaults():
    assert str(Sample(size=1)) == "sample:size=1"
    assert str(Sample(size=1, list=(1, 2.5), flag=True)) == "sample:size=1,list=[1,2.5],flag=true"
    assert str(Dynamic(inner=NTK(factor=1), steps=None)) == "dynamic:inner=(ntk:factor=1),steps=nothing"


def test_build_wants_every_needed_name_and_no_other():
    assert build(Sample, {"size": 2}) == Sample(size=2)
    with pytest.raises(InvalidValue, match="sample needs size; write sample:size="):
        build(Sample, {})
    with pytest.raises(UnknownName, match=r"sample has no parameter 'siz'; did you mean 'size'.* size, share"):
        build(Sample, {"siz": 2})
