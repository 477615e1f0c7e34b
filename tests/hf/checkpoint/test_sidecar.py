"""`ropewalk.json` and the numbers beside it are read as they were written, or refused by name."""

import json
import shutil
from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from hypothesis import HealthCheck, given, settings, strategies as st
from safetensors.torch import load_file, save_file

from ropewalk import Unreadable, extended, load, parse, save
from ropewalk.errors import RopewalkError
from ropewalk.hf.checkpoint.sidecar import FILE, LEARNED, read

from hf.models import tiny

EXTENSION = parse("biases.t5+scales.head_scale+rerope:window=8")
MIXED = replace(EXTENSION, layers={-1: parse("nope"), 2: parse("by_parts:factor=4")})
GOOD = {
    "ropewalk": "0.1.0",
    "extension": MIXED.to_json(),
    "lift_windows": True,
    "mode": "attention",
    "target_len": 128,
    "trained_len": 32,
}

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
)


def places(value, path=()):
    """The path of every value within another."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield from places(each, (*path, key))


def at(value, path):
    for key in path:
        value = value[key]
    return value


PLACES = [path for path in places(GOOD) if path]


@st.composite
def changed(draw):
    """The file with one thing in it that is otherwise: a value, a key, a key more or less or twice, a character."""
    values, path = deepcopy(GOOD), draw(st.sampled_from(PLACES))
    holder, key = at(values, path[:-1]), path[-1]
    how = draw(st.sampled_from(["value", "near", "gone", "renamed", "more", "twice", "character", "cut"]))
    if how == "value":
        holder[key] = draw(VALUES)
    elif how == "near":  # of a type that Python takes for the same
        holder[key] = draw(st.sampled_from([str(holder[key]), [holder[key]], {"name": holder[key]}, 1, 0, 1.0, -1, ""]))
    elif how == "gone":
        del holder[key]
    elif how == "renamed" and isinstance(holder, dict):
        holder[draw(st.text(max_size=5))] = holder.pop(key)
    elif how == "more":
        (holder if isinstance(holder, dict) else values)[draw(st.text(max_size=5))] = draw(VALUES)
    text = json.dumps(values, indent=2)
    if how == "twice" and isinstance(holder, dict):
        said = json.dumps(key) + ":"
        return text.replace(said, f"{said} {json.dumps(draw(VALUES))}, {said}", 1)
    place = draw(st.integers(0, len(text) - 1))
    if how == "character":
        return text[:place] + draw(st.characters(codec="utf-8")) + text[place + 1 :]
    return text[:place] if how == "cut" else text


def once(pairs):
    assert len(dict(pairs)) == len(pairs), "a key is given twice"
    return dict(pairs)


def within(said, known):
    """Whether all that was said is known, with its type; what is empty says nothing."""
    if isinstance(said, dict):
        return isinstance(known, dict) and all(
            within(each, known.get(key)) for key, each in said.items() if each not in ({}, [])
        )
    if isinstance(said, list):
        return isinstance(known, list) and len(said) == len(known) and all(map(within, said, known))
    return said == known and isinstance(said, bool) == isinstance(known, bool)


@pytest.mark.nightly
@settings(max_examples=600, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=changed())
def test_a_changed_file_says_what_it_says_or_is_refused(tmp_path, text):
    """Nothing in it is passed over: what is read, written again, holds everything that the file said."""
    (tmp_path / FILE).write_bytes(text.encode("utf-8", "surrogatepass"))
    try:
        extension, how = read(tmp_path)
    except RopewalkError:
        return
    said = json.loads(text, object_pairs_hook=once)
    known = {"extension": extension.to_json(), **how}
    assert within({key: said[key] for key in said if key not in ("ropewalk", "target_len")}, known)
    assert said.keys() <= GOOD.keys()
    assert isinstance(said.get("ropewalk", ""), str)
    assert said.get("target_len") is None or said["target_len"] >= 1


def test_the_good_file_is_read(tmp_path):
    (tmp_path / FILE).write_text(json.dumps(GOOD))
    assert read(tmp_path) == (MIXED, {"lift_windows": True, "mode": "attention", "trained_len": 32})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"lift_windows": "false"}, "lift_windows must be true or false, got 'false'"),
        ({"lift_windows": 0}, "lift_windows must be true or false, got 0"),
        ({"mode": "side"}, "mode must be 'tables' or 'attention' or nothing, got 'side'"),
        ({"target_len": 0}, "target_len must be at least 1, got 0"),
        ({"target_len": "128"}, "target_len must be a whole number or nothing, got '128'"),
        ({"trained_len": 1.5}, "trained_len must be a whole number or nothing, got 1.5"),
        ({"ropewalk": 5}, "ropewalk must be text, got 5"),
        ({"extension": "{}"}, "extension must be a JSON object of slots, got '{}'"),
        ({"lift_window": True}, "there is no key 'lift_window'; did you mean 'lift_windows'? Known: extension"),
    ],
)
def test_refusals_name_file_field_rule_and_value(tmp_path, change, words):
    (tmp_path / FILE).write_text(json.dumps(GOOD | change))
    with pytest.raises(RopewalkError) as refused:
        read(tmp_path)
    assert str(refused.value).startswith(f"{tmp_path / FILE}: {words}")


@pytest.mark.parametrize("content", [b"\xff", b"", b"[]", b"null", b"[" * 100_000, b'{"lift_windows": NaN}', b"{}"])
def test_files_that_are_none(tmp_path, content):
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(Unreadable, match=r"ropewalk\.json.* what save wrote"):
        read(tmp_path)
    (tmp_path / FILE).unlink()
    (tmp_path / FILE).mkdir()
    with pytest.raises(Unreadable, match="Is a directory"):
        read(tmp_path)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    place = tmp_path_factory.mktemp("model") / "saved"
    with extended(tiny("llama", num_hidden_layers=2), EXTENSION) as handle:
        save(handle.model, place)
    return place


NAN = float("nan")


@pytest.mark.sampled(cases=3)
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda kept, name: {}, "must be the 4 learned numbers of ropewalk.json, got ['no "),
        (lambda kept, name: kept | {"more": torch.ones(1)}, "got ['more']"),
        (lambda kept, name: kept | {name: kept[name].flatten()[:1]}, "{name} in {file} must be of shape"),
        (lambda kept, name: kept | {name: kept[name][None]}, "must be of shape"),
        (lambda kept, name: kept | {name: kept[name] * NAN}, "must be of finite numbers"),
        (lambda kept, name: kept | {name: kept[name].int()}, "must be of a floating type, got 'torch.int32'"),
        (None, "header too small"),
        ("gone", "No such file"),
    ],
)
def test_numbers_that_are_not_those_that_were_learned(saved, tmp_path, change, words):
    place = shutil.copytree(saved, tmp_path / "model")
    load(place)
    kept = load_file(place / LEARNED)
    name = max(kept, key=lambda each: kept[each].numel())
    if change is None:
        (place / LEARNED).write_bytes(b"garbage")
    elif change == "gone":
        (place / LEARNED).unlink()
    else:
        save_file(change(kept, name), place / LEARNED)
    with pytest.raises(Unreadable) as refused:
        load(place)
    assert words.format(name=name, file=place / LEARNED) in str(refused.value)
