"""What holds for every method, whatever it does. A method without an example turns this red."""

import dataclasses
import typing

import pytest
import torch

from ropewalk import Extension, parse
from ropewalk.errors import UnknownName
from ropewalk.extension.slots import SLOTS
from ropewalk.methods.record import parameters
from ropewalk.methods.spec import build

from examples import EVERY, EXAMPLES, FACTS
from invariants.probe import alternatives, probe

SLOT_OF = {spec: slot for slot, specs in EXAMPLES.items() for spec in specs}
every = pytest.mark.parametrize("spec", EVERY, ids=str)
IN_A_TWIN = ("positional_contrast", "new_base")  # it turns a second model: tests/hf/use/test_contrast.py
FIELDS = [
    (spec, parameter.name)
    for spec in EVERY
    for parameter in parameters(type(spec))
    if (spec.name, parameter.name) != IN_A_TWIN
]


def filled(spec):
    slot = SLOT_OF[spec]
    return Extension(**{slot: (spec,) if SLOTS[slot].several else spec})


@pytest.mark.parametrize("slot", SLOTS)
def test_every_method_has_an_example(slot):
    assert {type(spec) for spec in EXAMPLES[slot]} == set(SLOTS[slot].methods)


@every
def test_frozen_and_hashable(spec):
    assert hash(spec) == hash(dataclasses.replace(spec))
    for parameter in parameters(type(spec)):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(spec, parameter.name, None)


@every
def test_keyword_only_and_final(spec):
    assert all(field.kw_only for field in dataclasses.fields(spec))
    assert type(spec).__subclasses__() == []


@every
def test_json_round_trip(spec):
    extension = filled(spec)
    assert Extension.from_json(extension.to_json()) == extension


@every
def test_text_round_trip(spec):
    assert parse(f"{SLOT_OF[spec]}.{spec}") == filled(spec)


@every
def test_unknown_parameters_are_refused(spec):
    with pytest.raises(UnknownName, match=f"{spec.name} has no parameter 'colour'"):
        build(type(spec), {"colour": 1})


@every
def test_every_field_says_what_it_means(spec):
    for parameter in parameters(type(spec)):
        assert parameter.meaning or parameter.name == "factor", parameter.name


@every
def test_pure(spec):
    """Twice the same, also after another spec of the same class was asked."""
    first = probe(SLOT_OF[spec], spec)
    for parameter in parameters(type(spec)):
        for other in alternatives(SLOT_OF[spec], spec, parameter.name):
            probe(SLOT_OF[spec], other)
    assert same(probe(SLOT_OF[spec], spec), first)


@pytest.mark.parametrize(("spec", "field"), FIELDS, ids=lambda each: str(each))
def test_a_field_that_differs_gives_a_different_result(spec, field):
    slot = SLOT_OF[spec]
    others = alternatives(slot, spec, field)
    assert others, "no other value of this field was tried"
    assert any(not same(probe(slot, spec), probe(slot, other)) for other in others)


@every
def test_describe_names_the_method_and_its_formula(spec):
    described = filled(spec).describe()
    assert f"{SLOT_OF[spec]}.{spec}" in described


@every
def test_types_are_stated(spec):
    for name in ("table", "spans", "bias", "scale", "number", "combine", "convert"):
        if callable(getattr(type(spec), name, None)):  # a field may have the name of a function
            assert "return" in typing.get_type_hints(getattr(type(spec), name))


def same(one, other):
    if isinstance(one, Exception) or isinstance(other, Exception):
        return type(one) is type(other)
    return len(one) == len(other) and all(
        a.shape == b.shape and torch.equal(a.nan_to_num(-1.0), b.nan_to_num(-1.0))
        for a, b in zip(one, other, strict=True)
    )


@every
def test_check_against_accepts_the_example_model(spec):
    filled(spec).check_against(FACTS)
