"""Random extensions and facts, what Python computes for them in float64, and what the page's scripts do.

Cases are drawn from the declared type and rule of every parameter, so that a new method is drawn the day it is written.
A case goes to the browser as its line of notation: numbers are read there as people write them.
"""

import dataclasses
import math
import random
from typing import Literal, get_args, get_origin

import torch

from ropewalk import Facts, parse
from ropewalk.errors import RopewalkError
from ropewalk.extension.parsing import PRESETS, parse_for
from ropewalk.extension.slots import SLOTS
from ropewalk.measure.diagnostics.decay import decay
from ropewalk.measure.diagnostics.pair_angles import pair_angles
from ropewalk.methods.reach import effective_distances, furthest
from ropewalk.methods.record import parameters

DRAWN = ("frequencies", "reach", "scales", "biases")  # slots with a formula on the page
CLOSE = 1e-9  # of the largest number of a case: float64 on both sides, which round their powers and cosines differently
CASES = 24  # of every method

COMPUTE = """(cases) => cases.map(({slot, line, facts, at, weights}) => {
  const known = Ropewalk.facts.make(facts), {slots} = Ropewalk.catalogue;
  const extension = Ropewalk.extension.parse(line, known, null);
  const spec = slots[slot].several ? extension[slot][0] : extension[slot];
  Ropewalk.extension.checkAgainst(extension, known);
  const method = Ropewalk.methods[slot][spec.name];
  const each = (compute) => at.flatMap((number) => compute(number));
  if (slot === "frequencies") return each((length) => {
    const table = method.table(spec.values, known, length);
    return [...table.invFreq, ...table.logDecay];
  });
  if (slot === "scales") return each((position) => method.scale(spec.values, position, known, weights));
  if (slot === "biases") return each((n) => method.bias(spec.values, n, n + 3, known, weights));
  const spans = method.spans(spec.values);
  return each((i) => [...at.map((j) => Ropewalk.reach.distance(spans, i, j)), Ropewalk.reach.furthest(spans, i)]);
})"""


def cases(slot, name, seed=0):
    """Extensions of one method with random parameters, on random models that accept them."""
    rng = random.Random(f"{slot} {name} {seed}")
    method = next(spec for spec in SLOTS[slot].methods if spec.name == name)
    drawn = []
    while len(drawn) < CASES:
        facts = _facts(rng)
        try:
            spec = _spec(rng, method, facts)
            spec.check_against(facts)
        except RopewalkError:
            continue
        drawn.append((f"{slot}.{spec}", facts, _places(rng, facts)))
    return drawn


def _facts(rng):
    heads, pairs = rng.choice([1, 3, 4, 6]), rng.choice([4, 8, 32])
    facts = Facts(
        trained_len=rng.choice([33, 512, 4096, 10_000]),
        head_dim=2 * pairs * rng.choice([1, 2]),
        rotary_dim=2 * pairs,
        base=rng.choice([100.0, 10_000.0, 1e6]),
        heads=heads,
        layers=rng.choice([4, 7, 32]),
    )
    if rng.random() < 0.3:  # a checkpoint with a schedule of its own
        table = parse("by_parts", trained_len=facts.trained_len, target_len=4 * facts.trained_len).theta.table(facts, 1)
        facts = dataclasses.replace(facts, inv_freq=tuple(table.inv_freq.tolist()))
    return facts


def _places(rng, facts):
    longest = facts.trained_len
    ends = [0, 1, longest - 1, longest, longest + 1, 2 * longest, 9 * longest]
    return sorted({*ends, *(rng.randrange(12 * longest) for _ in range(5))})


def _spec(rng, method, facts):
    values = {}
    for parameter in parameters(method):
        if parameter.default is dataclasses.MISSING or rng.random() < 0.8:
            values[parameter.name] = _value(rng, parameter.type, parameter.name, method, facts)
    return method(**values)


def _value(rng, hint, name, method, facts):
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return rng.choice(arguments)
    if origin is tuple and arguments[0] is int:
        return tuple(rng.randrange(1, 40) for _ in range(rng.randrange(1, facts.rotating // 2 + 1)))
    if origin is tuple:
        return tuple(rng.uniform(1, 8) for _ in range(facts.rotating // 2))
    if arguments:
        return _value(rng, rng.choice(arguments), name, method, facts)
    if hint in (type(None), bool):
        return None if hint is type(None) else rng.random() < 0.5
    if hint is int:
        return rng.choice([rng.randrange(1, 40), rng.randrange(1, facts.trained_len), 2 * rng.randrange(1, 64)])
    if hint is float:
        return rng.uniform(0.05, 1) if name == "share" else rng.choice([1.0, rng.uniform(0.05, 2), rng.uniform(1, 64)])
    return _inner(rng, hint, method, facts)


def _inner(rng, family, method, facts):
    """A nested method: with factor 1 where every row sets it."""
    slot = next(slot for slot in SLOTS.values() if slot.family is family)
    inner = rng.choice([spec for spec in slot.methods if spec is not method])
    spec = _spec(rng, inner, facts)
    return dataclasses.replace(spec, factor=1) if hasattr(spec, "factor") else spec


def as_facts(facts):
    """The facts as the page has them."""
    keys = ("trained_len", "head_dim", "base", "inv_freq", "original_len", "rotary_dim", "heads", "kv_heads", "layers")
    return {key: getattr(facts, key) for key in keys}


def expected(slot, line, facts, at):
    """What Python computes, as one list of numbers; and the learned numbers that it took."""
    extension = parse(line)
    spec = extension.specs[slot][0]
    places = torch.tensor(at)
    weights = spec.weights(facts, torch.Generator().manual_seed(7)) if slot in ("biases", "scales") else {}
    if slot == "frequencies":
        numbers = torch.cat([torch.cat(spec.table(facts, length)) for length in at])
    elif slot == "scales":
        numbers = spec.scale(places, facts, weights).T.flatten()
    elif slot == "biases":
        numbers = spec.bias(places, places + 3, facts, weights).T.flatten()
    else:
        distances = effective_distances(spec, places, places)
        last = torch.tensor([[furthest(spec, i)] for i in at], dtype=torch.float64)
        numbers = torch.cat([distances, last], 1).flatten()
    return numbers.double().tolist(), {name: value.tolist() for name, value in weights.items()}


def mismatches(page, slot, name, seed=0):
    """The lines for which the page computes something else than Python, with the first number that differs."""
    drawn = cases(slot, name, seed)
    wanted = [expected(slot, *case) for case in drawn]
    sent = [
        {"slot": slot, "line": line, "facts": as_facts(facts), "at": at, "weights": weights}
        for (line, facts, at), (_, weights) in zip(drawn, wanted, strict=True)
    ]
    computed = page.evaluate(COMPUTE, sent)
    compared = zip(drawn, wanted, computed, strict=True)
    return [(line, where) for (line, *_), (numbers, _), got in compared if (where := different(numbers, got))]


def different(numbers, got):
    """The first place where two lists of numbers differ; nothing where they are the same."""
    if len(numbers) != len(got):
        return f"{len(numbers)} numbers, and the page has {len(got)}"
    size = max([1e-300, *(abs(number) for number in numbers if math.isfinite(number))])
    for place, (one, other) in enumerate(zip(numbers, got, strict=True)):
        if other is None or math.isnan(one) != math.isnan(other) or abs(one - other) > CLOSE * size:
            return f"number {place} is {one!r}, and the page has {other!r}"
    return ""


COMPOSE = """(cases) => cases.map(({line, facts, target}) => {
  const lines = (extension) => Ropewalk.extension.specs(extension).map((spec) => {
    return `${spec.slot}.${Ropewalk.record.line(spec)}`;
  });
  const extension = Ropewalk.extension.parse(line, Ropewalk.facts.make(facts), target);
  return [lines(extension), ...[...extension.layers].map(([key, override]) => [key, lines(override)])];
})"""


def preset_cases(name, seed=0):
    """Lines with a preset for random models and lengths, with what Python makes of them."""
    rng = random.Random(f"{name} {seed}")
    drawn = []
    while len(drawn) < CASES:
        facts = _facts(rng)
        target = int(facts.trained_len * rng.choice([1.5, 4, 8, 11.3]))
        line = name if rng.random() < 0.5 else f"{name}:{rng.choice(CHOICES)}"
        try:
            extension = parse_for(line, facts, target)
        except RopewalkError:
            continue
        drawn.append(({"line": line, "facts": as_facts(facts), "target": target}, composed(extension)))
    return drawn


CHOICES = ("factor=3.7", "window=9", "low_turns=2,high_turns=17.5", "n_sink=3", "steps=nothing", "clipped=false")
CHOICES += ("new_base=3e5", "limit=9000", "leak=3.5", "group=5", "chunk=20", "block=12", "rerope_window=8", "beta=0.5")
CHOICES += ("kv_heads=1", "eta=0.2,top_p=0.8", "local=4", "steps=3", "shift=30", "every=2", "every=3,window=5")
CHOICES += ("start=0.4", "groups=[3,9,1]")


def composed(extension):
    """The methods of an extension in lines, and those of its layers."""
    lines = [f"{slot}.{spec}" for slot, specs in extension.specs.items() for spec in specs]
    return [lines, *([key, composed(override)[0]] for key, override in extension.overrides)]


LOOK = """(cases) => cases.map(({line, facts, target, weights}) => {
  const known = Ropewalk.facts.make(facts), parsed = Ropewalk.extension.parse(line, known, target);
  const view = Ropewalk.diagnostics.view(parsed, known, target);
  Object.assign(view.weights, weights);
  const angles = Ropewalk.diagnostics.pairAngles(view);
  const decay = Array.from({length: target}, (_, distance) => Ropewalk.diagnostics.decayAt(view, distance));
  return [...angles.flatMap((pair) => [pair.theta, pair.trained, pair.asked, Number(pair.unseen)]), ...decay];
})"""


def look_case(name):
    """A preset on a small model: the angles of its pairs, the decay of its attention, by Python."""
    facts, target = Facts(trained_len=48, head_dim=16, heads=4, layers=4), 200
    extension = parse_for(name, facts, target)
    first = extension.at_layer(0, facts)
    weights = first.weights(facts, torch.Generator().manual_seed(0))
    angles = pair_angles(extension, facts, target)
    numbers = [n for pair in angles for n in (pair.theta, pair.turns_trained, pair.turns_asked, float(pair.unseen))]
    numbers += decay(extension, facts, target).tolist()
    learned = {name: {key: value.tolist() for key, value in group.items()} for name, group in weights.items()}
    return {"line": name, "facts": as_facts(facts), "target": target, "weights": learned}, numbers


def drawable():
    """The presets that a panel can draw."""
    return [
        name
        for name in PRESETS
        if set(parse_for(name, Facts(trained_len=48, head_dim=16, heads=4, layers=4), 200).specs) & set(DRAWN)
    ]
