"""The formulas of the page, in JavaScript, against Python's: shared vectors for every method."""

import pytest

from ropewalk.extension.parsing import PRESETS
from ropewalk.extension.slots import SLOTS

from page import vectors
from page.vectors import DRAWN, different, mismatches

METHODS = [(slot, method.name) for slot in DRAWN for method in SLOTS[slot].methods]


@pytest.mark.parametrize(("slot", "name"), METHODS)
def test_every_method_gives_the_same_numbers(scripts, slot, name):
    assert mismatches(scripts, slot, name) == []


def test_no_formula_is_of_a_method_that_is_not_there(scripts):
    stated = scripts.evaluate("Object.entries(Ropewalk.methods).map(([slot, all]) => [slot, Object.keys(all)])")
    assert {(slot, name) for slot, names in stated for name in names} == set(METHODS)


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_the_same_composition(scripts, name):
    drawn = vectors.preset_cases(name)
    computed = scripts.evaluate(vectors.COMPOSE, [case for case, _ in drawn])
    assert computed == [composition for _, composition in drawn]


@pytest.mark.parametrize("name", [*vectors.drawable(), "dpe:window=5,groups=[2,9,1]"])
def test_the_panels_draw_what_python_computes(scripts, name):
    case, numbers = vectors.look_case(name)
    (computed,) = scripts.evaluate(vectors.LOOK, [case])
    assert different(numbers, computed) == ""


@pytest.mark.parametrize(("slot", "name"), [(slot, name) for slot, name in METHODS if slot in ("biases", "scales")])
def test_learned_numbers_before_training_have_pythons_shapes(scripts, slot, name):
    line, facts, _ = vectors.cases(slot, name)[0]
    _, weights = vectors.expected(slot, line, facts, [0])
    drawn = scripts.evaluate(
        """([line, facts]) => {
          const known = Ropewalk.facts.make(facts);
          const extension = Ropewalk.extension.parse(line, known, null);
          return Object.values(Ropewalk.diagnostics.initialWeights(extension, known))[0] ?? {};
        }""",
        [line, vectors.as_facts(facts)],
    )
    assert {key: shape(value) for key, value in drawn.items()} == {key: shape(value) for key, value in weights.items()}


def shape(numbers):
    return (len(numbers), *shape(numbers[0])) if isinstance(numbers, list) else ()


# The tests above, tested: what is broken on purpose is noticed.


@pytest.fixture
def broken(chromium, file):
    """The page with one part of its scripts replaced."""
    contexts = []

    def breaking(part, replacement):
        text = file.read_text("utf-8")
        assert text.count(part) == 1, f"{part} stands {text.count(part)} times in the page"
        contexts.append(chromium.new_context())
        page = contexts[-1].new_page()
        page.set_content(text.replace(part, replacement))
        return page

    yield breaking
    for context in contexts:
        context.close()


@pytest.mark.parametrize(
    ("slot", "name", "part", "replacement"),
    [
        ("frequencies", "ntk", "(rotating(facts) - 2))),", "(rotating(facts) - 1))),"),
        ("frequencies", "by_parts", "last = Math.max(Math.min(last, rotating(facts) - 1), first)", "last = last + 0"),
        ("frequencies", "cope", "Math.max(slow.length - 1, 1)", "Math.max(slow.length, 1)"),
        ("frequencies", "resonance", "Number(rest > 0.5)", "Number(rest > 0.25)"),
        ("frequencies", "partial", "pair < movingPairs(values, facts)", "pair <= movingPairs(values, facts)"),
        ("reach", "self_extend", "div(i, group) + window - div(window, group)", "div(i, group) + window"),
        ("reach", "dpe", "Math.min(...groups)", "Math.max(...groups)"),
        ("reach", "sinks", "Math.min(i, n_sink + window - 1)", "Math.min(i, n_sink + window)"),
        (
            "scales",
            "deepseek_temperature",
            "0.1 * coefficient * Math.log(factor)",
            "0.2 * coefficient * Math.log(factor)",
        ),
        ("scales", "log_n", "Math.log(position + 1)", "Math.log(position + 2)"),
        ("biases", "alibi", "2 ** ((-8 * (h + 1)) / heads)", "2 ** ((-8 * h) / heads)"),
        ("biases", "t5", "exact + Math.trunc(share * exact)", "exact + Math.round(share * exact)"),
    ],
)
def test_a_broken_formula_is_noticed(broken, slot, name, part, replacement):
    assert mismatches(broken(part, replacement), slot, name) != []


def test_a_broken_preset_is_noticed(broken):
    page = broken("(0.75 * trained - 1)", "(0.5 * trained - 1)")
    drawn = vectors.preset_cases("hwfa")
    assert page.evaluate(vectors.COMPOSE, [case for case, _ in drawn]) != [composition for _, composition in drawn]


def test_a_missing_formula_is_noticed(broken):
    page = broken("  ntk_old: {", "  ntk_older: {")
    with pytest.raises(Exception, match="undefined"):
        mismatches(page, "frequencies", "ntk_old")
