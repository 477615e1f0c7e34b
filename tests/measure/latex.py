"""A table in LaTeX, read back without LaTeX."""

import re

SIGNS = {"textbraceleft": "{", "textbraceright": "}", "textbackslash": "\\", "textasciitilde": "~"}
SIGNS |= {"textasciicircum": "^", "textless": "<", "textgreater": ">", "textbar": "|"}
SIGN = re.compile(rf"\\({'|'.join(SIGNS)}){{}}|\\([&%$#_])|\$(-)\$")


def words(cell):
    """A cell as it is printed; a sign that LaTeX would take for more than itself is an error."""
    code = re.fullmatch(r"\\texttt\{((?:[^{}]|\{\})*)\}(.*)", cell)
    cell = code[1] + code[2] if code else cell
    assert not re.search(r"[\\&%$#_{}~^<>|]", SIGN.sub("", cell)), cell
    return SIGN.sub(lambda found: SIGNS.get(found[1]) or found[2] or found[3], cell)


def read_table(text):
    """Caption, column spec and rows of words; the head is the first."""
    lines = [line for line in text.splitlines() if not line.startswith("%")]
    opened = []
    for kind, name in re.findall(r"\\(begin|end)\{(\w+)\}", "\n".join(lines)):
        assert kind == "begin" or opened.pop() == name
        opened += [name] * (kind == "begin")
    assert not opened
    begin, head, caption = "\\begin{tabular}{", lines.index("\\toprule") + 1, lines[2]
    assert lines[head + 1] == "\\midrule"
    rows = [lines[head], *lines[head + 2 : lines.index("\\bottomrule")]]
    assert all(row.endswith(" \\\\") for row in rows)
    spec = next(line for line in lines if line.startswith(begin)).removeprefix(begin).removesuffix("}")
    cells = [re.split(r" (?<!\\)& ", row.removesuffix(" \\\\")) for row in rows]
    assert {len(row) for row in cells} == {len(spec)}
    assert caption.startswith("\\caption{")
    return words(caption[len("\\caption{") : -1]), spec, [tuple(map(words, row)) for row in cells]
