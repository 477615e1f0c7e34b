"""Formulas as the methods' docstrings have them, set as mathematics: MathML for pages, LaTeX for Markdown.

mathml("theta'_i = theta_i / factor")
latex("theta'_i = theta_i / factor")
"""

from __future__ import annotations

import re
from html import escape

from ropewalk.page.formula import GREEK, RELATIONS, Leaf, Node, Tree, bare, blocks

MINUS = Leaf("sign", "−")
NO_BREAK = "\u00a0"
ELEMENTS = {"power": "msup", "sub": "msub", "below": "munder", "root": "msqrt"}
OF_LATEX = frozenset({"cos", "exp", "ln", "log", "max", "min", "sin"})
TOO_WIDE = re.compile(r" \\, (?=\\(?:cdot|cos|exp|ln|log|max|min|sin)\b)|(?<=\\cdot) \\, ")
COMMANDS = {"≤": r"\le", "≥": r"\ge", "→": r"\to", "∼": r"\sim", "|": r"\mid", "⋅": r"\cdot", "…": r"\dots", "−": "-"}
COMMANDS |= {"−=": r"\mathrel{-}=", ":": r"{:}\;", "∑": r"\sum"}
COMMANDS |= {letter: f"\\{name}" for name, letter in GREEK.items()}
FENCES = {"⌊": r"\lfloor", "⌋": r"\rfloor", "⌈": r"\lceil", "⌉": r"\rceil", "⟨": r"\langle", "⟩": r"\rangle"}
FENCES |= {"{": r"\{", "}": r"\}"}


def mathml(formula: str) -> str:
    """A formula of a docstring as a `<math>` element."""
    tables = [_table([[_mathml(cell) for cell in line] for line in block]) for block in blocks(formula)]
    shown = tables[0] if len(tables) == 1 else _table([[table] for table in tables])
    return f'<math xmlns="http://www.w3.org/1998/Math/MathML" display="block">{shown}</math>'


def latex(formula: str) -> str:
    """A formula of a docstring as LaTeX for display; one of several lines is an array."""
    arrays = [_array([[_latex(cell) for cell in line] for line in block]) for block in blocks(formula)]
    return arrays[0] if len(arrays) == 1 else _array([[array] for array in arrays])


def _table(lines: list[list[str]]) -> str:
    cells = [[f'<mtd style="text-align:left">{cell}</mtd>' for cell in line] for line in lines]
    rows = [f"<mtr>{''.join(line)}</mtr>" for line in cells]
    return f'<mtable displaystyle="true">{"".join(rows)}</mtable>'


def _mathml(tree: Tree) -> str:
    if isinstance(tree, Leaf):
        return _mathml_leaf(tree)
    parts = [_mathml(part) for part in _parts(tree)]
    first = tree.parts[0] if tree.parts else tree
    if tree.kind == "fraction":
        return f"<mfrac><mrow>{parts[0]}</mrow><mrow>{parts[1]}</mrow></mfrac>"
    if tree.kind == "fence":
        stretchy = "" if _tall(first) else ' stretchy="false"'
        opener, closer = (f"<mo{stretchy}>{escape(sign)}</mo>" for sign in tree.text)
        return f"<mrow>{opener}{parts[0]}{closer}</mrow>"
    if tree.kind == "power" and isinstance(first, Node) and first.kind == "sub":
        base, below = map(_mathml, first.parts)
        return f"<msubsup>{base}{below}{parts[1]}</msubsup>"
    name = ELEMENTS.get(tree.kind, "mrow")
    space = '<mspace width="0.17em"/>' if tree.kind == "product" else ""
    return f"<{name}>{space.join(parts)}</{name}>"


def _mathml_leaf(leaf: Leaf) -> str:
    if leaf.kind == "space":
        return f'<mspace width="{leaf.text}em"/>'
    if leaf.kind == "sign" or leaf.text == "∑":
        form = ' form="infix"' if leaf.text in RELATIONS.values() else ""
        form = ' lspace="0" rspace="0"' if leaf.text == "/" else form
        return f"<mo{form}>{escape(leaf.text)}</mo>"
    if leaf.kind == "minus":
        return '<mo form="prefix">−</mo>'
    name = {"number": "mn", "name": "mi"}.get(leaf.kind, "mtext")
    return f"<{name}>{escape(leaf.text)}</{name}>"


def _array(lines: list[list[str]]) -> str:
    if len(lines) == 1:
        return " ".join([*lines[0][:2], *(rf"\quad {cell}" for cell in lines[0][2:])])
    rows = [" & ".join(line) for line in lines]
    columns = "l" * max(map(len, lines))
    ends = [rf" \\[{'0.9em' if 'frac' in row else '0.3em'}]" for row in rows[:-1]]
    shown = [f"{row}{end}" for row, end in zip(rows, [*ends, ""], strict=True)]
    return "\n".join([rf"\begin{{array}}{{{columns}}}", *shown, r"\end{array}"])


def _latex(tree: Tree) -> str:
    if isinstance(tree, Leaf):
        return _latex_leaf(tree)
    parts = [_latex(part) for part in _parts(tree)]
    if tree.kind == "fraction":
        return rf"\dfrac{{{parts[0]}}}{{{parts[1]}}}"
    if tree.kind == "fence":
        opener, closer = (FENCES.get(sign, sign) for sign in tree.text)
        left, right = (r"\left", r"\right") if _tall(tree.parts[0]) else ("", "")
        return f"{left}{opener} {parts[0]} {right}{closer}"
    if tree.kind == "root":
        return rf"\sqrt{{{parts[0]}}}"
    if tree.kind in ("sub", "below"):
        return f"{parts[0]}_{{{parts[1]}}}"
    if tree.kind == "power":
        return f"{parts[0]}'" if parts[1] == "'" else f"{parts[0]}^{{{parts[1]}}}"
    return TOO_WIDE.sub(" ", (r" \, " if tree.kind == "product" else " ").join(parts))


def _latex_leaf(leaf: Leaf) -> str:
    if leaf.kind == "space":
        return r"\quad" if leaf.text == "1" else r"\;"
    if leaf.kind in ("prose", "code"):
        return rf"\text{{{leaf.text.replace(NO_BREAK, ' ')}}}"
    if leaf.kind == "name" and len(leaf.text) > 1:
        escaped = leaf.text.replace("_", r"\_")
        return f"\\{leaf.text}" if leaf.text in OF_LATEX else rf"\mathrm{{{escaped}}}"
    return COMMANDS.get(leaf.text, leaf.text).replace("′", "'")


def _parts(tree: Node) -> tuple[Tree, ...]:
    """The parts as they are shown: without superfluous parentheses, words with spaces where they touch others."""
    if tree.kind == "fraction":
        return tuple(map(bare, tree.parts))
    shown: list[Tree] = []
    for place, part in enumerate(tree.parts):
        if tree.kind == "row" and isinstance(part, Leaf) and part.kind in ("prose", "code"):
            beside = tree.parts[max(place - 1, 0) : place], tree.parts[place + 1 : place + 2]
            before, after = (NO_BREAK * any(other.kind not in ("sign", "space") for other in side) for side in beside)
            part = Leaf(part.kind, f"{before}{part.text}{after}")
        elif part == MINUS and (place == 0 or tree.parts[place - 1].kind == "sign"):
            part = Leaf("minus", "−")
        shown.append(part)
    return tuple(shown)


def _tall(tree: Tree) -> bool:
    """Whether a fence around it has to grow."""
    return isinstance(tree, Node) and (tree.kind in ("fraction", "below") or any(map(_tall, tree.parts)))
