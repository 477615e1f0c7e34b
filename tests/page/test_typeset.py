"""Every formula of a docstring as MathML and LaTeX: nothing is lost, and its parts belong together as they should."""

import re
from xml.etree import ElementTree

import pytest

import ropewalk as rw
from ropewalk.extension.slots import SLOTS
from ropewalk.methods.docstrings import page_of
from ropewalk.page.typeset import latex, mathml

FORMULAS = {
    f"{slot}.{method.name}": page_of(method).formula for slot, (_, methods, *_) in SLOTS.items() for method in methods
}
FORMULAS["equation"] = (
    "logit(i,j) = scale(i) * < R(theta, q_at(i)) q_i , R(theta, k_at(j)) k_j > / sqrt(d)  +  bias(i - j)"
)
LETTERS = dict(zip("βηγλπψθζ", ["beta", "eta", "gamma", "lambda", "pi", "psi", "theta", "zeta"], strict=True))


def written(text):
    """The words and numbers of a formula, in order; those that become brackets or a root left out."""
    text = re.sub(r"\b1e-", "10 ", text)
    text = re.sub(r"\b(floor|ceil)\b(?=\(| [a-z])|\bsqrt\b|\bsum(?=_)", " ", text)
    return re.findall(r"[A-Za-z]+|\d+(?:\.\d+)?", text)


def shown_in_mathml(formula):
    text = " ".join(ElementTree.fromstring(mathml(formula)).itertext())
    for letter, name in LETTERS.items():
        text = text.replace(letter, f" {name} ")
    return re.findall(r"[A-Za-z]+|\d+(?:\.\d+)?", text)


@pytest.mark.parametrize("formula", FORMULAS.values(), ids=FORMULAS)
def test_mathml_has_every_name_and_number_in_order(formula):
    assert shown_in_mathml(formula) == written(formula)


def shown_in_latex(formula):
    text = re.sub(
        r"\\(?:begin|end)\{array\}(?:\{l+\})?|\\\\\[0.\dem\]|\\(?:text|mathrm|dfrac|sqrt)(?=\{)", " ", latex(formula)
    )
    text = re.sub(
        r"\\(?:left|right|lfloor|rfloor|lceil|rceil|langle|rangle|quad|cdot|dots|sum|mathrel|le|ge|to|sim|mid)(?![A-Za-z])",
        " ",
        text,
    )
    return re.findall(r"[A-Za-z]+|\d+(?:\.\d+)?", text.replace(r"\_", "_"))


@pytest.mark.parametrize("formula", FORMULAS.values(), ids=FORMULAS)
def test_latex_has_every_name_and_number_in_order(formula):
    assert shown_in_latex(formula) == written(formula)
    assert latex(formula).count("{") == latex(formula).count("}")


def test_latex_of_a_block():
    assert latex("theta'_i = theta_i / low_turns   beyond\ny_i    = [0, i//s + e^(2i/d))") == (
        "\\begin{array}{lll}\n"
        r"\theta_{i}' & = \dfrac{\theta_{i}}{\mathrm{low\_turns}} & \text{beyond} \\[0.9em]"
        "\n"
        r"y_{i} & = [ 0 , \lfloor i / s \rfloor + e^{2 i / d} )"
        "\n"
        r"\end{array}"
    )


def test_latex_of_one_line():
    assert latex("scale(i) = min(1, x)   for i <= L") == (
        r"\mathrm{scale} ( i ) = \min ( 1 , x ) \quad \text{for } i \le L"
    )


def inside(formula):
    """The second cell of the only line, without spaces of a width."""
    cell = re.findall(r"<mtd[^>]*>(.*?)</mtd>", mathml(formula))[-1]
    return re.sub(r"<mspace[^>]*/>| style=\"[^\"]*\"| \w+=\"[^\"]*\"", "", cell).replace("<mrow></mrow>", "")


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        ("x / 2 y", "<mfrac><mrow><mi>x</mi></mrow><mrow><mrow><mn>2</mn><mi>y</mi></mrow></mrow></mfrac>"),
        ("i/s s", "<mrow><mrow><mi>i</mi><mo>/</mo><mi>s</mi></mrow><mi>s</mi></mrow>"),
        ("theta'_i", "<msubsup><mi>θ</mi><mi>i</mi><mo>′</mo></msubsup>"),
        ("low_turns", "<mi>low_turns</mi>"),
        ("e^-m_h", "<msup><mi>e</mi><mrow><mo>−</mo><msub><mi>m</mi><mi>h</mi></msub></mrow></msup>"),
        ("for a model", "<mtext>for a model</mtext>"),
        ("[0, w)", "<mrow><mo>[</mo><mrow><mn>0</mn><mo>,</mo><mi>w</mi></mrow><mo>)</mo></mrow>"),
        ("floor x + 1", "<mrow><mo>⌊</mo><mi>x</mi><mo>⌋</mo></mrow><mo>+</mo><mn>1</mn>"),
        ("0 < a <= 2", "<mn>0</mn><mo>&lt;</mo><mi>a</mi><mo>≤</mo><mn>2</mn>"),
    ],
)
def test_parts_belong_together(formula, expected):
    shown = inside(formula)
    assert shown == f"<mrow>{expected}</mrow>", shown


def test_a_sign_that_no_formula_has_is_refused():
    with pytest.raises(rw.RopewalkError, match="got '%"):
        mathml("x % y")
