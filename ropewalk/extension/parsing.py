"""From a line of notation to an extension.

A name is a preset, or `slot.method`, or a method whose name no preset has. A line is read once (`read_line`), before a
model is known, and built once (`Line.build`), for the lengths of the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import MISSING
from functools import reduce
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

from ropewalk.errors import Conflict, InvalidValue, RopewalkError, UnknownName
from ropewalk.extension import presets
from ropewalk.extension.extension import WORDS, Extension
from ropewalk.extension.notation import INSTEAD, Term, names_file, read, unknown_name
from ropewalk.extension.outside import method_on_line, offered, offered_names, require_unclashed
from ropewalk.extension.presets.arguments import require_whole, stretch
from ropewalk.extension.slots import SLOTS, method, slot_of
from ropewalk.files import read_text
from ropewalk.methods.facts import Facts
from ropewalk.methods.record import arguments, parameters
from ropewalk.methods.spec import TARGET_OVER_TRAINED, Spec, build, require_parameters

PRESETS = {preset.__name__: preset for preset in presets.ALL}
CONTEXT = (
    "trained_len",
    "target_len",
    "layers",
    "key_heads",
)  # what a preset takes from the model where the line does not state it
SOME_MODEL = {"trained_len": 4096, "target_len": 16_384, "layers": 4, "key_heads": 4}


class Line(NamedTuple):
    """A line of notation, read once: its names and parameters exist. `build` makes the extension for given lengths."""

    text: str
    terms: tuple[Term, ...]
    stored: Extension | None = None  # where the line names a file

    @property
    def replaces_scaling(self) -> bool:
        """Whether the line replaces the checkpoint's own schedule."""
        return any(term.name == INSTEAD for term in self.terms)

    def build(
        self,
        *,
        trained_len: int | None = None,
        target_len: int | None = None,
        layers: int | None = None,
        key_heads: int | None = None,
        original_len: int | None = None,
    ) -> Extension:
        """The extension, its presets filled with what is known of the model."""
        if self.stored is not None:
            return self.stored
        require_whole("original_len", original_len)
        ground = original_len or trained_len if self.replaces_scaling else trained_len
        known = dict(zip(CONTEXT, (ground, target_len, layers, key_heads), strict=True))
        for name, value in known.items():
            require_whole(name, value)
        context = {name: value for name, value in known.items() if value is not None}
        return reduce(Extension.__add__, (_extension(term, context) for term in self.terms))

    def build_for(self, facts: Facts, target_len: int | None) -> Extension:
        """The extension for a model."""
        lengths = {"trained_len": facts.trained_len, "original_len": facts.original_len, "target_len": target_len}
        return self.build(layers=facts.layers, key_heads=facts.groups, **lengths)


def read_line(text: str | Line) -> Line:
    """Read a line, or the file such as `extension.json` that it names; unknown names and parameters are refused."""
    if isinstance(text, Line):
        return text
    if isinstance(text, str) and text.endswith(".json"):
        stored = read_text(Path(text), "extension", "a line, or a file of an extension")
        return Line(text, (), Extension.from_json(stored))
    terms = tuple(read(text))
    for term in terms:
        _require_known(term)
    _require_compatible(terms)
    return Line(text, terms)


def parse(
    text: str,
    *,
    trained_len: int | None = None,
    target_len: int | None = None,
    layers: int | None = None,
    key_heads: int | None = None,
    original_len: int | None = None,
) -> Extension:
    """The extension that a line names, or that a file holds.

        rw.parse("yarn:factor=4+log_n")
        rw.parse("yarn+log_n", trained_len=4096, target_len=32768)
        rw.parse("extension.json")

    Presets derive their values from what follows the text; values in the line win.

    Args:
        text: a line of notation, or the path of a file that an extension was written to.
        trained_len: the trained length in tokens.
        target_len: the target length in tokens.
        layers: how many attention layers the model has.
        key_heads: how many key heads each of them has.
        original_len: the length before the checkpoint's own schedule, from which a line with `+instead` counts.
    """
    lengths = {"trained_len": trained_len, "target_len": target_len, "original_len": original_len}
    return read_line(text).build(layers=layers, key_heads=key_heads, **lengths)


def parse_for(text: str | Line, facts: Facts, target_len: int | None) -> Extension:
    """The extension that a line names, for a model."""
    return read_line(text).build_for(facts, target_len)


def notation_of(extension: Extension) -> str:
    """A line that means just this extension; empty where none does, as where layers or heads differ."""
    instead = [INSTEAD] if extension.replaces_scaling else []
    for written in ("{1}", "{0}.{1}"):  # with the slot where several have a method, or a preset has the name
        specs = [written.format(slot, spec) for slot, specs in extension.specs.items() for spec in specs]
        line = "+".join([*specs, *instead])
        with suppress(RopewalkError):
            if parse(line) == extension:
                return line
    return ""


def _require_known(term: Term) -> None:
    """Refuse a name, or a parameter of a name, that does not exist."""
    if term.name == INSTEAD:
        accepted: list[str] = []
    elif term.name in PRESETS:
        require_unclashed(term.name)
        accepted = list(arguments(PRESETS[term.name]))
    else:
        slot, name = _slot_and_name(term.name)
        return _require_method(slot, Term(name, term.values))
    for name in term.values:
        if name not in accepted:
            raise _unknown_parameter(term.name, name, accepted)


def _require_compatible(terms: tuple[Term, ...]) -> None:
    """Refuse two terms of which an extension holds one, by the names on the line: no model has to be known."""
    built: list[tuple[str, Extension]] = []
    for term in terms if len(terms) > 1 else ():
        with suppress(RopewalkError):  # a wrong value is refused when the line is built
            built.append((term.name, _extension(term, {**SOME_MODEL, **term.values})))
    for (name, mine), (other, theirs) in combinations(built, 2):
        try:
            mine + theirs
        except Conflict as refused:
            if name == other or refused.field not in WORDS:
                raise
            sentence = f"{name} and {other} are both {WORDS[refused.field]}"
            raise Conflict.because(refused.field, sentence, remedy="keep one") from None


def _require_method(slot: str, term: Term) -> None:
    """The same for a method and for the methods nested in it, which are of the same slot."""
    require_parameters(method(slot, term.name.removeprefix(f"{slot}.")), term.values)
    for value in term.values.values():
        if isinstance(value, Term):
            _require_method(slot, value)


def methods_of(term: Term) -> Iterator[type[Spec]]:
    """The method that a term names which is no preset, and the methods nested in it."""
    slot, name = _slot_and_name(term.name)
    yield method(slot, name)
    for value in term.values.values():
        if isinstance(value, Term):
            yield from methods_of(value._replace(name=f"{slot}.{value.name.removeprefix(f'{slot}.')}"))


def _extension(term: Term, context: Mapping[str, int]) -> Extension:
    if term.name == INSTEAD:
        return Extension(replaces_scaling=True)
    if term.name in PRESETS:
        return _preset(term, context)
    slot, name = _slot_and_name(term.name)
    spec = _spec(slot, Term(name, term.values), context)
    filled: dict[str, Any] = {slot: (spec,) if SLOTS[slot].several else spec}
    return Extension(**filled)


def _preset(term: Term, context: Mapping[str, int]) -> Extension:
    preset = PRESETS[term.name]
    parameters = arguments(preset)
    for name in CONTEXT:
        stated, known = term.values.get(name), context.get(name)
        require_whole(name, stated)
        if stated is not None and known is not None and stated != known:
            sentence = f"{term.name}:{name} is {stated}, but the model or the call says {known}"
            raise Conflict.because(name, sentence, remedy=f"leave {name} out")
    kwargs = {**{name: value for name, value in context.items() if name in parameters}, **term.values}
    required = [name for name, parameter in parameters.items() if parameter.default is MISSING]
    for name in required:
        if name not in kwargs:
            raise InvalidValue.because(name, f"{term.name} needs {name}", remedy=f"write {term.name}:{name}=...")
    return preset(**kwargs)


def _unknown_parameter(owner: str, name: str, accepted: list[str]) -> UnknownName:
    """An error that also names the method of the preset's name, which may have the parameter."""
    methods = [f"{slot}.{owner}" for slot in _slots_with(owner)]
    remedy = f"the method alone is {methods[0]}:..." if methods else ""
    return UnknownName("parameter", name, known=accepted, owner=owner, remedy=remedy)


def _slots_with(name: str) -> list[str]:
    """The slots that have a method of this name."""
    return [slot for slot, content in SLOTS.items() if name in [spec.name for spec in content.methods]]


def _slot_and_name(name: str) -> tuple[str, str]:
    if names_file(name):
        return slot_of(method_on_line(name)), name
    slot, dot, rest = name.partition(".")
    if dot:
        if slot not in SLOTS:
            raise UnknownName("slot", slot, known=SLOTS, owner="the equation")
        return slot, rest
    slots = _slots_with(name)
    if len(slots) > 1:
        known = [f"{slot}.{name}" for slot in slots]
        raise UnknownName.because("name", f"{name} is the name of several methods", known=known)
    if not slots and (kind := offered(name)) is not None:
        return slot_of(kind), name
    if not slots:
        methods = [f"{slot}.{spec.name}" for slot, content in SLOTS.items() for spec in content.methods]
        raise unknown_name(name, [*PRESETS, *methods, *offered_names(), INSTEAD])
    return slots[0], name


def _spec(slot: str, term: Term, context: Mapping[str, int]) -> Spec:
    """The method, its nested methods taken from the same slot. A factor that is not stated follows from the lengths."""
    kind = method(slot, term.name.removeprefix(f"{slot}."))
    values = {
        key: _spec(slot, value, context) if isinstance(value, Term) else value for key, value in term.values.items()
    }
    for parameter in parameters(kind):
        required = parameter.default is MISSING and parameter.name not in values
        if required and parameter.meaning == TARGET_OVER_TRAINED:
            lengths = (context.get("trained_len"), context.get("target_len"))
            values[parameter.name] = stretch(kind.name, None, *lengths)
    return build(kind, values)
