"""Reads the formulas of docstrings into trees, which typeset.py writes.

A line is cut into cells where two spaces stand, and a cell into tokens. A stroke without spaces divides what it touches
(`i//s s` is a product); one with spaces is a fraction of the products on both sides (`L x / 2 pi`).
"""

from __future__ import annotations

import re
from typing import NamedTuple, TypeAlias

from ropewalk.errors import InvalidValue

NAMES = ("beta", "eta", "gamma", "lambda", "pi", "psi", "theta", "zeta")
GREEK = dict(zip(NAMES, "βηγλπψθζ", strict=True))
FUNCTIONS = re.compile(r"argmin|ceil|clamp|cos|exp|floor|int|ln|log|max|min|mod|round|sin|softmax|sqrt")
LIMITS = frozenset({"max", "mean", "sum"})  # their subscript stands below
ENGLISH = re.compile(  # words that are none of the formula also where they stand alone
    "and|at|before|beyond|centred|clipped|elsewhere|else|evenly|for|from|group|heads|in|is|kept|learned|likewise|members"
    "|of|or|over|pair|same|stays|that|the|to|tokens|training|where|with"
)
RELATIONS = {"=": "=", "<": "<", ">": ">", "<=": "≤", ">=": "≥", "->": "→", "~": "∼", "|": "|", "-=": "−="}
SIGNS = {"*": "⋅", "-": "−", "..": "…", "...": "…", **RELATIONS}
CLOSERS = {"(": ")", "[": ")]", "{": "}", "<": ">", "|": "|"}
WIDE = 86  # characters of a block whose notes stand in columns
NAME = r"[A-Za-z]{2,}(?:_[A-Za-z]{2,})+|log_n(?![A-Za-z])"  # a parameter is one name, underscores and all
SUBSCRIPT = r"_(?:\{[^}]*\}|\d+[a-z](?:\+\d+)?|[a-z],[a-z](?![A-Za-z])|[A-Za-z]+)"
TOKEN = re.compile(
    r"(?P<space> *)(?:`(?P<code>[^`]*)`|(?P<number>\d+(?:\.\d+)?(?:e-\d+)?)"
    rf"|(?P<name>[A-Za-z]+'s\b|[A-Za-z]{{2,}}(?:-[A-Za-z]+)+|{NAME}|[A-Za-z]+)(?P<primes>'*)(?P<sub>(?:{SUBSCRIPT})?)"
    r"|(?P<sign>\.\.\.|\.\.|//|<=|>=|->|-=|[-+*/^=<>~|:,;()\[\]{}]))"
)
CELLS = re.compile(r"(?<![+/*] )(?<![+/*])  +(?![+/*] )")
LEFT = re.compile(r"(\[[^\]:]*\):|\w[^=:]*?(?= (?:->|~|=) ))(.*)")  # an interval, or what a line defines


class Word(NamedTuple):
    """`kind` is number, name, prose, code, sign or end; `space`: whether one stands before it."""

    kind: str
    text: str
    space: bool = True
    primes: str = ""
    sub: str = ""


class Leaf(NamedTuple):
    """What has no parts: its kind, and what is shown of it."""

    kind: str
    text: str


class Node(NamedTuple):
    """`kind` says how the parts belong together; `text` is the two signs of a fence."""

    kind: str
    parts: tuple[Tree, ...]
    text: str = ""


Tree: TypeAlias = Leaf | Node
QUAD, SPACE = Leaf("space", "1"), Leaf("space", "0.4")
END = Word("end", "")


def blocks(formula: str) -> list[list[list[Node]]]:
    """The cells of lines, in parts that empty lines divide; in a wide one long notes have lines of their own."""
    read = []
    for part in re.split(r"\n\s*\n", formula.strip("\n")):
        lines = [_cells(line) for line in part.split("\n")]
        columns = range(max(map(len, lines)))
        if sum(max(len(line[column]) for line in lines if column < len(line)) for column in columns) > WIDE:
            lines = [narrow for line in lines for narrow in _narrow(line)]
        read.append([[_cell(cell) for cell in line] for line in lines])
    return read


def _cells(line: str) -> list[str]:
    """What is defined, how, and what stands beside it: a line that begins with spaces goes on under the second."""
    first, *rest = CELLS.split(line.strip())
    if line.startswith(" "):
        return ["", first, *rest]
    match = LEFT.fullmatch(first)
    left, right = match.groups() if match else (first, "")
    return [left, right.strip(), *rest] if right else [left, *rest]


def _narrow(line: list[str]) -> list[list[str]]:
    """A line in two cells, and below it what is too much for one."""
    lines = [line[:2]]
    for note in line[2:]:
        beside = f"{lines[-1][1]}   {note}"
        if len(beside) < WIDE:
            lines[-1][1] = beside
        else:
            lines.append(["", note])
    return lines


def _cell(cell: str) -> Node:
    """The tree of a cell: between its parts, and after its commas, stands a space."""
    parts: list[Tree] = []
    for piece in CELLS.split(cell) if cell else []:
        parts += [QUAD] if parts else []
        row = _read(piece).parts
        for place, part in enumerate(row):
            parts += [part, SPACE] if part.text in (",", ";") and place + 1 < len(row) else [part]
    return Node("row", tuple(parts))


def _read(piece: str) -> Node:
    return _Reader(_tokens(piece)).row()


def _tokens(piece: str) -> list[Word]:
    tokens, place = [], 0
    while place < len(piece.rstrip()):
        match = TOKEN.match(piece, place)
        if match is None:
            raise InvalidValue("formula", "written in the signs of the others", piece[place:].strip())
        kind = next(kind for kind in ("code", "number", "name", "sign") if match[kind] is not None)
        tokens.append(Word(kind, match[kind], bool(match["space"]), match["primes"] or "", (match["sub"] or "")[1:]))
        place = match.end()
    return [token._replace(kind=_kind(tokens, place)) for place, token in enumerate(tokens)]


def _kind(tokens: list[Word], place: int) -> str:
    """`prose` for a word of English: a known one, or one beside another."""
    token = tokens[place]
    before = tokens[place - 1] if place and token.space else END
    after = tokens[place + 1] if place + 1 < len(tokens) else END
    beside = _is_word(before) or (after.space and _is_word(after)) or (before.text == "a" and not before.sub)
    if token.text == "a" and not token.sub and after.space and _is_word(after):
        return "prose"  # the article
    called = after.text in ("(", "[") and not after.space
    english = bool(ENGLISH.fullmatch(token.text)) or "'" in token.text or "-" in token.text or beside
    return "prose" if english and _is_word(token) and not called else token.kind


def _is_word(token: Word) -> bool:
    plain = token.kind == "name" and not token.primes and not token.sub and "_" not in token.text
    return plain and len(token.text) > 1 and not FUNCTIONS.fullmatch(token.text) and token.text not in GREEK


class _Reader:
    """Reads the tokens of a piece into trees; what it cannot place stands as it is."""

    def __init__(self, tokens: list[Word]) -> None:
        self.tokens = tokens
        self.place = 0

    @property
    def next(self) -> Word:
        """The token that comes."""
        return self.tokens[self.place] if self.place < len(self.tokens) else END

    def sign(self, signs: tuple[str, ...]) -> str:
        """The next token, where it is one of these."""
        return self.next.text if self.next.kind == "sign" and self.next.text in signs else ""

    def take(self) -> Word:
        """The next token, which is then behind."""
        self.place += 1
        return self.tokens[self.place - 1]

    def row(self, closers: str = "") -> Node:
        """Sums, with relations, separators and words between them."""
        parts: list[Tree] = []
        while self.next.kind != "end" and not self.sign(tuple(closers)):
            sign = self.next.text if self.next.kind == "sign" else ""
            opens = sign in CLOSERS and (sign not in "<|" or not parts or parts[-1].kind == "sign")
            if not sign or opens or sign in "+-":
                read = self.sum()
                parts += read.parts if isinstance(read, Node) and read.kind == "row" else [read]
            else:
                parts.append(Leaf("sign", SIGNS.get(self.take().text, sign)))
        return Node("row", tuple(parts))

    def sum(self) -> Tree:
        """Products with signs between them."""
        parts: list[Tree] = []
        while not parts or self.sign(("+", "-")):
            while self.sign(("+", "-")):
                sign = self.take().text
                parts.append(Leaf("sign", SIGNS.get(sign, sign)))
            parts.append(self.product())
        return parts[0] if len(parts) == 1 else Node("row", tuple(parts))

    def product(self) -> Tree:
        """Factors with `*`, `mod` and strokes that have spaces around them; words end it."""
        whole: list[Tree] = [self.factors()]
        while True:
            if self.sign(("*",)):
                whole += [Leaf("sign", SIGNS[self.take().text]), self.factors()]
            elif self.next.text == "mod":
                whole += [Leaf("name", self.take().text), self.factors()]
            elif self.sign(("/",)):
                self.take()
                whole[-1] = Node("fraction", (whole[-1], self.divisor()))
            elif self.sign(("//",)):
                self.take()
                whole = [Node("fence", (Node("fraction", (Node("product", tuple(whole)), self.divisor())),), "⌊⌋")]
            elif self.begins() and whole[-1].kind != "prose":
                whole.append(self.factors())
            else:
                return whole[0] if len(whole) == 1 else Node("product", tuple(whole))

    def divisor(self) -> Tree:
        """What a stroke with spaces divides by: one group, or all that stands side by side."""
        return self.tight() if self.next.text == "(" else self.factors()

    def factors(self) -> Tree:
        """What stands side by side."""
        parts = [self.tight()]
        while self.begins() and parts[-1].kind != "prose":
            parts.append(self.tight())
        return parts[0] if len(parts) == 1 else Node("product", tuple(parts))

    def begins(self) -> bool:
        """Whether another factor follows."""
        named = self.next.kind in ("number", "name", "code") and self.next.text != "mod"
        return named or bool(self.sign(("(", "{"))) or (bool(self.sign(("[",))) and not self.next.space)

    def tight(self) -> Tree:
        """What has no spaces: `2i/d`, `i//G`, `(i-w)/leak`."""
        parts = [self.power()]
        while self.begins() and not self.next.space and parts[0].kind == "number":
            parts.append(self.power())
        while self.sign(("/", "//")) and not self.next.space and not self.tokens[self.place + 1].space:
            divides = self.take().text == "/"
            parts += [Leaf("sign", "/"), self.power()]
            parts = parts if divides else [Node("fence", (Node("touching", tuple(parts)),), "⌊⌋")]
        return parts[0] if len(parts) == 1 else Node("touching", tuple(parts))

    def power(self) -> Tree:
        """What may have an exponent."""
        base = self.atom()
        if not self.sign(("^",)):
            return base
        self.take()
        signs = [Leaf("sign", SIGNS[self.take().text])] if self.sign(("-",)) else []
        return Node("power", (base, Node("row", (*signs, _flat(bare(self.atom()))))))

    def atom(self) -> Tree:
        """A number, some words, a name or a fence."""
        token = self.take()
        if token.kind == "prose":
            words = [token.text]
            while self.next.kind == "prose":
                words.append(self.take().text)
            return Leaf("prose", " ".join(words))
        if token.kind == "sign":
            return self.fence(token.text) if token.text in CLOSERS else Leaf("sign", SIGNS.get(token.text, token.text))
        if token.kind == "number" and token.text.startswith("1e-"):
            return Node(
                "power", (Leaf("number", "10"), Node("row", (Leaf("sign", "−"), Leaf("number", token.text[3:]))))
            )
        return self.named(token) if token.kind == "name" else Leaf(token.kind, token.text)

    def fence(self, opener: str) -> Node:
        """What stands between two brackets."""
        inside = self.row(CLOSERS[opener])
        closer = self.take().text if self.next.kind == "sign" else ")"
        return Node("fence", (inside,), {"<": "⟨"}.get(opener, opener) + {">": "⟩"}.get(closer, closer))

    def named(self, token: Word) -> Tree:
        """A name with its subscript and, where no space is between, its arguments."""
        called = bool(self.sign(("(", "["))) and not self.next.space
        if token.text in ("floor", "ceil") and self.begins():
            return Node("fence", (bare(self.atom()),), "⌊⌋" if token.text == "floor" else "⌈⌉")
        if token.text == "sqrt" and called:
            return Node("root", (bare(self.atom()),))
        name: Tree = Leaf("name", "∑" if token.text == "sum" and token.sub else GREEK.get(token.text, token.text))
        if token.sub:
            below = Leaf("name", token.sub) if token.sub.isalpha() else _read(token.sub.strip("{}"))
            name = Node("below" if token.text in LIMITS else "sub", (name, below))
        for _ in token.primes:
            name = Node("power", (name, Leaf("sign", "′")))
        return Node("touching", (name, self.fence(self.take().text))) if called else name


def bare(tree: Tree) -> Tree:
    """Without the parentheses that a fraction, a root or an exponent makes superfluous."""
    return tree.parts[0] if isinstance(tree, Node) and tree.text == "()" else tree


def _flat(tree: Tree) -> Tree:
    """With strokes in place of fractions, as an exponent has them."""
    if isinstance(tree, Leaf):
        return tree
    parts = tuple(_flat(part) for part in tree.parts)
    if tree.kind == "fraction":
        return Node("touching", (parts[0], Leaf("sign", "/"), parts[1]))
    return Node(tree.kind, parts, tree.text)
