"""`ropewalk show`, as a user runs it."""

import io
import sys
from typing import NamedTuple

import pytest

from ropewalk.cli.main import run
from ropewalk.extension.citations import cite
from ropewalk.extension.parsing import PRESETS
from ropewalk.extension.slots import SLOTS


class Shown(NamedTuple):
    """What a user sees."""

    returncode: int
    stdout: str
    stderr: str


def ropewalk(*arguments):
    """In this process, which has imported what a new one would import for seconds."""
    out, err = Written(), Written()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "160")
        patch.setattr(sys, "argv", ["ropewalk", *arguments])
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", err)
        status = run(arguments)
    return Shown(status, out.getvalue(), err.getvalue())


class Written(io.StringIO):
    encoding = "utf-8"


def test_an_extension():
    shown = ropewalk("show", "yarn:factor=8")
    assert shown.returncode == 0
    assert shown.stderr == ""
    text = shown.stdout
    assert text.startswith(
        "logit(i,j) = < yarn_temperature(i) * R(theta, q_at(i)) q_i , R(theta, k_at(j)) k_j > / sqrt(d)"
    )
    assert "theta'_i = keep_i theta_i + (1 - keep_i) theta_i / factor" in text
    assert "Source: Peng et al. 2023, arXiv:2309.00071" in text
    rows = [
        [cell.strip() for cell in line.strip("│ ").split("│")] for line in text.splitlines() if line.startswith("│")
    ]
    assert ["high_turns", "32.0", "a number, above 0", "pairs with more rotations stay (beta, beta_fast, r)"] in rows
    # 4,096 tokens, base 10,000: pair 0 turns 4096 / 2 pi = 651.90 times and is left alone; the last is slowed by 8.
    assert ["0", "6.3", "651.90", "5,215.19", "1.00"] in rows
    assert ["63", "54,410.1", "0.08", "0.08", "8.00"] in rows


def test_everything():
    text = ropewalk("show").stdout
    assert all(f" {name} " in text for name in PRESETS)
    assert all(f"{slot}.{method.name} " in text for slot, (_, methods, *_) in SLOTS.items() for method in methods)


def table(text, head):
    """The rows of the table with such a head, as cells."""
    after = text[text.index(head) :]
    rows = [line for line in after[: after.index("└")].splitlines() if line.startswith("│")]
    return [[cell.strip() for cell in row.strip("│ ").split("│")] for row in rows]


@pytest.mark.nightly
def test_what_needs_a_length_and_has_none_is_shown_for_eight_times_the_trained_one():
    given, assumed = ropewalk("show", "yarn", "--to", "32k").stdout, ropewalk("show", "yarn").stdout
    said = "For 32,768 tokens, 8 times the trained length; --to changes that.\n\n"
    assert assumed.count(said) == 1
    assert assumed.replace(said, "") == given
    assert ropewalk("show", "yarn", "--trained-len", "1k").stdout.count("For 8,192 tokens") == 1
    assert ropewalk("show", "yarn:factor=4").stdout.count("8 times") == 0
    assert "in a text of 32,768\n" in ropewalk("show", "rope").stdout  # it stretches nothing
    assert "ropewalk inspect default" in ropewalk("show", "default").stderr


def test_the_distances_that_a_reach_shows():
    """ReRoPE with w = 1,024 in a row of 32,768 tokens: the last token sees none further away than that."""
    text = ropewalk("show", "rerope", "--to", "32k").stdout
    rows = table(text, "┃ distance")
    assert ["256", "256"] in rows
    assert rows[-4:] == [["1,024", "1,024"], ["4,096", "1,024"], ["16,384", "1,024"], ["32,767", "1,024"]]
    # Pair 0 turns once in 2 pi tokens, and sees 0 .. 1,024: 1,025 / 2 pi.
    assert table(text, "┃ pair ")[0] == ["0", "6.3", "651.90", "163.13", "1.00"]
    assert ["4,096", "out of reach"] in table(ropewalk("show", "window:window=512", "--to", "8k").stdout, "┃ distance")
    assert "distance " not in ropewalk("show", "yarn:factor=8").stdout


def test_rotations_of_pairs_that_a_reach_places_differently():
    """ReRoPE by parts, w = 192 of 512, leak (4,096 - 192) / 192: pair 0 stops at 192, the slowest goes on to 384."""
    text = ropewalk("show", "rerope_by_parts", "--trained-len", "512", "--to", "4k", "--head-dim", "64").stdout
    pairs = table(text, "┃ pair ")
    assert pairs[0][2:4] == ["81.49", "30.72"]  # 512 and 193 tokens, over 2 pi
    assert float(pairs[-1][3]) == pytest.approx(385 / 512 * 0.0109, abs=0.01)
    assert "effective distance, the largest of all pairs" in text


def test_a_row_of_any_length_is_shown():
    """Nothing is made of every token of it."""
    assert table(ropewalk("show", "rerope", "--to", "1000000m").stdout, "┃ distance")[-1][1] == "1,024"


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_shown(name, capsys):
    """In this process, for speed: the whole path below the command line."""
    from ropewalk.cli.verbs.show import show

    show(name, trained_len="4k", to="32k", head_dim=64, base=10_000.0, layers=24, heads=8)
    assert "logit(i,j)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["yarn:faktor=2"], "ropewalk: yarn has no parameter 'faktor'; did you mean 'factor'? It has: factor"),
        (
            ["rerope:window=4096", "--trained-len", "2k"],
            "ropewalk: window must be at most 2047 for a model trained on 2048",
        ),
        (["yarn", "--to", "much"], "ropewalk: --to must be a whole number such as 512, 32k or 1m, got 'much'"),
        (["yarn:factor=2", "--head-dim", "7"], "ropewalk: --head-dim must be a positive even number, got 7"),
    ],
)
def test_refusals_are_one_line(arguments, message):
    shown = ropewalk("show", *arguments)
    assert shown.returncode == 2
    assert shown.stdout == ""
    assert shown.stderr.startswith(message)
    assert shown.stderr.count("\n") == 1


def test_a_partial_rotation_is_compared_with_its_own_pairs():
    text = ropewalk("show", "partial:share=0.5", "--head-dim", "64").stdout
    rows = [
        [cell.strip() for cell in line.strip("│ ").split("│")] for line in text.splitlines() if line.startswith("│")
    ]
    assert {row[-1] for row in rows if row[0].isdigit()} == {"1.00"}


@pytest.mark.nightly
@pytest.mark.parametrize("arguments", [["yarn:factor=1e18"], ["llama3", "--trained-len", "1m", "--to", "9999999m"]])
def test_sizes_beyond_reason_are_survived(arguments):
    assert ropewalk("show", *arguments).returncode == 0


def test_lengths_derive_what_is_not_said():
    text = ropewalk("show", "self_extend", "--trained-len", "4k", "--to", "32k").stdout
    assert "reach.self_extend:window=1024,group=19" in text


def test_rotations_say_in_which_texts():
    said = " ".join(ropewalk("show", "yarn:factor=4", "--trained-len", "8k", "--to", "32k").stdout.split())
    assert "Rotations per pair: trained on 8,192 tokens, in a text of 32,768" in said
    said = " ".join(ropewalk("show", "rerope:window=512", "--to", "32k").stdout.split())
    assert "Rotations per pair: trained on 4,096 tokens, in a text of 32,768, by effective distances" in said


def test_what_to_cite():
    shown = ropewalk("show", "yarn+log_n", "--cite")
    assert (shown.returncode, shown.stdout, shown.stderr) == (0, cite("yarn+log_n"), "")
    for line, said in (((), "name one, as in ropewalk show yarn --cite"), (("yern",), "did you mean 'yarn'")):
        refused = ropewalk("show", *line, "--cite")
        assert refused.returncode != 0
        assert said in refused.stderr
        assert refused.stdout == ""
