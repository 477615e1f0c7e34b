"""The page reads the same notation as Python, and refuses with the same sentences."""

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from ropewalk import Facts
from ropewalk.errors import RopewalkError
from ropewalk.extension.parsing import PRESETS, parse_for
from ropewalk.extension.slots import SLOTS
from ropewalk.methods.record import Rule, arguments, parameters

from page.vectors import as_facts, composed

FACTS, TARGET = Facts(trained_len=4096, head_dim=128, heads=32, layers=32), 32_768
READ = """(lines) => lines.map(([line, facts, target]) => {
  try {
    const known = Ropewalk.facts.make(facts), extension = Ropewalk.extension.parse(line, known, target);
    Ropewalk.extension.checkAgainst(extension, known);
    return Ropewalk.extension.specs(extension).map((spec) => `${spec.slot}.${Ropewalk.record.line(spec)}`);
  } catch (refused) {
    if (!(refused instanceof Ropewalk.Refusal)) throw refused;
    return refused.message;
  }
})"""


def by_python(line, facts=FACTS, target=TARGET):
    """The methods of a line, or the sentence that refuses it."""
    try:
        extension = parse_for(line, facts, target)
        extension.check_against(facts)
        return composed(extension)[0]
    except RopewalkError as refused:
        return str(refused)


def by_page(scripts, lines, facts=FACTS, target=TARGET):
    return scripts.evaluate(READ, [[line, as_facts(facts), target] for line in lines])


READABLE = (
    *("yarn", " yarn : factor = 8 , high_turns = 16 + log_n ", "rerope:window=512+log_n", "yarn:factor=4e0"),
    *("window:window=1k+dynamic_yarn", "alibi+log_n", "frequencies.ntk:factor=1e+1+temperature:value=1.5"),
    *("dynamic_ntk:steps=nothing", "frequencies.dynamic:inner=(by_parts:factor=1,ramp=turns),steps=3", "instead+yarn"),
    *(
        "partial:share=0.25,inner=(ntk:factor=8)",
        "longrope:long=[],short=[]",
        "yarn+instead",
        "hwfa+abf",
        "log_n+log_n",
    ),
    *("yarn+resonance", "resonance+yarn", "yarn+cope:pairs=20+resonance", "cope+resonance+dynamic_yarn", "p_rope+yarn"),
    *("resonance+resonance", "rope+resonance", "yarn+partial:share=0.5", "cope:turns=2,clip=hard", "hwfa+resonance"),
    *("streaming:n_sink=8", "temperature:value=0.00001", "temperature:value=123456789012345678", "by_parts"),
)
REFUSED = (
    *(
        "",
        " ",
        "t5:",
        "yarn+",
        "+yarn",
        "4x",
        "yarn:",
        "yarn:factor",
        "yarn:=4",
        "yarn:factor=",
        "yarn factor",
        "a:x=(b",
        "a)",
    ),
    *("yarn:faktor=4", "yarm", "rerop", "dynamic_yam", "zzz", "yarn+pi", "rerope+window", "biases.alibbi", "foo.bar"),
    *("frequencies.yarn", "frequencies.dynamic:inner=(yarn)", "dynamic", "interpolation", "rerope:window=4096"),
    *("yarn:factor=0.5", "yarn:factor=abc", "yarn:factor='x'", "yarn:factor=nothing,low_turns=40", "yarn:low_turns=0"),
    *(
        "yarn:factor=true",
        "rerope:window=512.0",
        "rerope:window=-3",
        "rerope:window=nothing,window=3",
        "by_parts:factor=nan",
    ),
    *("yarn:factor=1e30", "blockwise:block=7", "dual_chunk:chunk=9,local=9", "longrope:short=[1,2]", "instead:x=1"),
    *("longrope:long=[1,2,3]", "longrope:long=[0]", "partial:share=0.001", "partial:share=2", "abf:new_base=10000"),
    *("frequencies.dynamic:inner=(rope)", "frequencies.dynamic:inner=(ntk:factor=4)", "scales.dynamic:inner=(log_n)"),
    *(
        "scales.dynamic:inner=(yarn_temperature:factor=2)",
        "frequencies.dynamic:inner=(ntk:faktor=1)",
        "t5:buckets=8,x=1",
    ),
    *("biases.t5:buckets=8,max_distance=4", "kerple_power:x=1", "yarn:trained_len=512", "rerope:trained_len=0"),
    *("self_extend:window=3000", "lm_infinite:window=5000", "streaming:window=4095", "leaky_rerope:window=2048"),
    *("lambda_mask:window=9,ceiling=5000", "randomized:limit=99999999", "rope:x=1", "a:x=[[[[[[[[[1]]]]]]]]]"),
    *("yarn:factor=4,factor=4", "yarn:factor=99999999999999999999999999999999", "by_parts:factor=4,ramp=slope"),
    *("string:shift=9,local=9", "string:shift=4097,local=9", "llama4_temperature:first=2", "ssmax:start=0"),
    *("swan:every=1", "swan:every=2.5", "irope:chunk=4096", "hwfa:window=4096", "rnope_swa:window=5000"),
    *("irope:every=99", "irope:every=0", "hwfa_rerope:window=4096"),
    *("yarn+cope+pi", "yarn+cope+cope:clip=hard", "resonance+cope+resonance", "cope:turns=1,pairs=3", "cope:pairs=65"),
    *("cope:turns=0.001", "cope:pairs=1", "partial:share=0.5+cope:turns=30", "p_rope:share=0.01", "cope:clip=firm"),
    *("log_n:clipped=1", "log_n+log_n:clipped=false", "hwfa:layers=1", "head_scale:start=0", "yarn:original_len=3"),
    *("yarn:factor=(" + "+" * 9_000 + ")", "+" * 9_000, "y" * 10_001, "log_n+" * 2_000 + "log_n", "a:x=1e+1e+1"),
)


@pytest.mark.parametrize("line", READABLE)
def test_what_python_reads_is_read_alike(scripts, line):
    wanted = by_python(line)
    assert isinstance(wanted, list)
    assert by_page(scripts, [line]) == [wanted]


@pytest.mark.parametrize("line", REFUSED)
def test_what_python_refuses_is_refused_in_the_same_words(scripts, line):
    wanted = by_python(line)
    assert isinstance(wanted, str)
    assert by_page(scripts, [line]) == [wanted]


@pytest.mark.parametrize(
    ("line", "facts", "target"),
    [
        ("yarn", FACTS, None),
        ("pi", FACTS, 1024),
        ("pose", FACTS, None),
        ("log_n", Facts(trained_len=1, head_dim=8), 8),
        ("longrope_temperature:factor=2", Facts(trained_len=1, head_dim=8), 8),
        ("ntk", Facts(trained_len=8, head_dim=2), 16),
        ("hwfa", Facts(trained_len=8, head_dim=8, layers=9), 16),
        ("hwfa_rerope", Facts(trained_len=8, head_dim=8, layers=2), 16),
        ("hwfa_rerope", Facts(trained_len=64, head_dim=8, layers=3), 128),
        ("swan", Facts(trained_len=64, head_dim=8, layers=1), 128),
        ("irope", Facts(trained_len=64, head_dim=8, layers=3), 128),
        ("rnope_swa", Facts(trained_len=64, head_dim=8, layers=2), 128),
        ("ssmax", Facts(trained_len=1, head_dim=8), 8),
        ("string", Facts(trained_len=3, head_dim=8), 8),
        ("partial:share=0.5", Facts(trained_len=8, head_dim=8, inv_freq=(1.0, 0.1, 0.01, 0.001)), 16),
        ("p_rope", Facts(trained_len=8, head_dim=8, inv_freq=(1.0, 0.1, 0.01, 0.001)), 16),
        ("p_rope", Facts(trained_len=8, head_dim=8, inv_freq=(1.0, 0.1, 0.0, 0.0)), 16),
        ("p_rope", Facts(trained_len=8, head_dim=8, inv_freq=(1.0, 0.1, 1e-22, 1e-24)), 16),
        ("cope:pairs=3", Facts(trained_len=8, head_dim=8, inv_freq=(1.0, 0.1, 1e-22, 1e-24)), 16),
        ("cope:pairs=3", Facts(trained_len=8, head_dim=8, inv_freq=(1.0, 0.1, 0.0, 0.0)), 16),
        ("cope", Facts(trained_len=8, head_dim=32, rotary_dim=2), 16),
        ("yarn+instead", Facts(trained_len=8, head_dim=4, inv_freq=(1.0, 0.01), original_len=4), 16),
    ],
)
def test_models_that_do_not_fit_are_refused_in_the_same_words(scripts, line, facts, target):
    assert by_page(scripts, [line], facts, target) == [by_python(line, facts, target)]


NAMES = sorted({*PRESETS, *(f"{slot}.{spec.name}" for slot, content in SLOTS.items() for spec in content.methods)})
KEYS = sorted({parameter.name for slot in SLOTS.values() for spec in slot.methods for parameter in parameters(spec)})
VALUES = st.sampled_from(
    ["4", "8.5", "512", "nothing", "true", "turns", "x", "(ntk:factor=1)", "[1,2]", "-1", "1e400", "-inf", "0"]
)
LENGTHS = st.integers(1, 2**20)


@st.composite
def misspelt(draw, names):
    """A known name, as people mistype it."""
    name = draw(st.sampled_from(names))
    place = draw(st.integers(0, len(name)))
    return name[:place] + draw(st.sampled_from(["", "", "", "e", "x", "_"])) + name[place + draw(st.integers(0, 1)) :]


@st.composite
def lines(draw, names):
    """Methods with values, whose parameters are their own, those of others, or mistyped."""
    terms = []
    for _ in range(draw(st.integers(1, 3))):
        name = draw(names)
        own = sorted(arguments(PRESETS[name])) if name in PRESETS else KEYS
        pairs = draw(st.lists(st.tuples(st.sampled_from(own or KEYS) | misspelt(KEYS), VALUES), max_size=2))
        terms.append(name + (":" if pairs else "") + ",".join(f"{key}={value}" for key, value in pairs))
    return "+".join(terms)


@settings(max_examples=15, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(drawn=st.lists(lines(misspelt(NAMES)), min_size=40, max_size=40))
def test_mistyped_lines_get_the_same_answer(scripts, drawn):
    assert by_page(scripts, drawn) == list(map(by_python, drawn))


@settings(max_examples=15, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    drawn=st.lists(lines(st.sampled_from(sorted(PRESETS))), min_size=20, max_size=20),
    trained_len=LENGTHS,
    layers=st.integers(1, 40),
    target=st.none() | LENGTHS,
)
def test_presets_of_any_values_and_lengths_get_the_same_answer(scripts, drawn, trained_len, layers, target):
    facts = Facts(trained_len=trained_len, head_dim=64, heads=8, layers=layers)
    assert by_page(scripts, drawn, facts, target) == [by_python(line, facts, target) for line in drawn]


def test_every_rule_is_known_to_the_page(scripts):
    rules = {
        parameter.rule.text
        for slot in SLOTS.values()
        for spec in slot.methods
        for parameter in parameters(spec)
        if isinstance(parameter.rule, Rule)
    }
    assert rules <= set(scripts.evaluate("Object.keys(Ropewalk.record.RULES)"))
