"""What the page shows of a model that reads: computed from its losses and weights, and drawn in a browser."""

import re

import pytest
import torch

import ropewalk as rw
from ropewalk.cli.main import run
from ropewalk.hf.attach.attention import capture_layers
from ropewalk.measure.arguments import RunOptions
from ropewalk.measure.opened_model import open_model
from ropewalk.methods.facts import Facts
from ropewalk.models import DEFAULT
from ropewalk.page import html
from ropewalk.page.assemble import first_lines
from ropewalk.page.attended import queries, read_text
from ropewalk.page.example import curves, read_example

from hf.models import tiny
from page.conftest import given

pytestmark = pytest.mark.nightly

DESK = {"viewport": {"width": 1280, "height": 900}}
TRAINED = 64
LINES = ("rerope+log_n", "window:window=100")


def losses(*parts):
    """Losses of stretches of a text, as (tokens, nats)."""
    return torch.cat([torch.full((count,), float(nats)) for count, nats in parts])


STEADY, UP = losses((255, 2)), losses((99, 2), (156, 5))


@pytest.mark.parametrize(
    ("line", "kind", "at"),
    [
        (STEADY, "reads_on", 0),
        (UP, "breaks", 101),  # windows of 64 // 16 = 4 tokens; the first with a loss of token 100 ends there
        (losses((99, 2), (60, 5), (96, 2)), "rises", 0),  # it comes back
        (losses((99, 2), (90, 5), (5, 2), (61, 5)), "breaks", 101),  # a dip is no recovery: 5 of 156 tokens
        (losses((99, 2), (3, 5), (7, 2), (146, 5)), "breaks", 109),  # up and back at once: 4 of the next 16 are outside
        (losses((10, 2), (6, 5), (83, 2), (156, 2)), "reads_on", 0),
        (losses((99, 2), (10, 2.05), (146, 2)), "reads_on", 0),
        (losses((20, 2), (10, 6), (225, 2)), "reads_on", 0),  # a hard passage within the trained length
        (losses((254, 2), (1, 90)), "rises", 0),  # the very end is no break
        (losses((255, 4)), "breaks", 4),  # worse from the beginning
    ],
)
def test_where_a_curve_breaks(line, kind, at):
    drawn = curves({"rope": STEADY, "line": line}, STEADY, TRAINED)["found"]
    assert drawn["rope"]["kind"] == "reads_on"
    assert drawn["line"]["kind"] == kind
    assert at == 0 or abs(drawn["line"]["at"] - at) <= 1
    assert drawn["line"] == curves({"line": line}, STEADY, TRAINED)["found"]["line"]  # whatever is read beside it


@pytest.mark.parametrize(
    ("alone", "line", "at"),
    [
        # SmolLM2 seemed to read on: what came was easy, and its loss rose only to what hard passages had cost before.
        (losses((40, 3), (59, 2), (156, 1)), losses((40, 3), (59, 2), (156, 3)), 101),
        # 20 tokens above all that came before, for both: it breaks where they part.
        (losses((99, 2), (20, 5), (136, 2)), UP, 121),
    ],
)
def test_passages_are_easy_or_hard_for_both(alone, line, at):
    found = curves({"rope": line}, alone, TRAINED)["found"]["rope"]
    assert found["kind"] == "breaks"
    assert abs(found["at"] - at) <= 1


def test_a_hard_beginning_is_no_break():
    """A long text, of which nine tenths are broken whether or not the beginning counts."""
    hard = losses((12, 6), (40, 2), (900, 5))
    found = curves({"line": hard}, losses((952, 2)), TRAINED)["found"]["line"]
    assert found["kind"] == "breaks"
    assert abs(found["at"] - 53) <= 1


def test_a_curve_is_the_mean_of_the_losses_before_each_point():
    drawn = curves({"rope": torch.arange(1.0, 256.0)}, STEADY, TRAINED)  # the loss of token n is n
    assert drawn["at"][0] == 4
    assert drawn["at"][-1] == 255
    for at, loss in zip(drawn["at"], drawn["losses"]["rope"], strict=True):
        assert loss == pytest.approx(at - 1.5)  # at-3, at-2, at-1, at


def test_a_text_within_training_has_no_break():
    assert curves({"rope": STEADY[:63]}, STEADY[:63], TRAINED)["found"]["rope"]["kind"] == "reads_on"


@pytest.fixture(scope="module")
def example():
    return read_example(str(DEFAULT), [*LINES, "nbce"], 768, RunOptions(progress=False))


def test_what_is_read_is_what_the_model_computes(example):
    """The mean of the last 512 // 16 = 32 losses at the end, by rw.score on the texts that compare takes."""
    assert example["length"] == 768
    assert set(example["losses"]) == {"rope", *LINES}
    assert list(example["refused"]) == ["nbce"]
    with open_model(str(DEFAULT), RunOptions()) as opened:
        texts = torch.stack(opened.subject("stdlib", 768).passages(example["texts"]))
        assert opened.tokenizer.decode(texts[0]) == "".join(example["tokens"])
        means = {"rope": rw.score(opened.model, texts)[:, -32:].mean()}
        last = rw.score(opened.model, texts[:, 256:])[:, -32:].mean()  # the last 512 tokens alone
        for line in LINES:
            with rw.extended(opened.model, line, target_len=768):
                means[line] = rw.score(opened.model, texts)[:, -32:].mean()
    for line, mean in means.items():
        assert example["losses"][line][-1] == pytest.approx(float(mean), abs=2e-3)
    assert example["alone"][-1] == pytest.approx(float(last), abs=2e-3)
    assert example["at"][-1] == 767


def test_keys_are_those_of_a_whole_pass():
    """Read in chunks with a cache, against one pass over the whole text, layer by layer."""
    rows, heard = [100, 700, 1498], []
    with open_model(str(DEFAULT), RunOptions()) as opened:
        subject = opened.subject("stdlib", 1500)
        ids = subject.passages(1)[0][None]
        with rw.extended(opened.model, "rerope+log_n", target_len=1500, mode="attention"):
            read = read_text(subject, ids, rows, heard.append)
            later = capture_layers(opened.model, ids, lambda one: one.layer.depth > 2 and list(map(one.weights, rows)))
    assert heard == sorted(heard)  # how far it is
    assert heard[-1] == 1499
    for of_row, row in zip(read.keys, zip(*filter(None, later), strict=True), strict=True):
        weights = torch.stack(row)[:, 0].double().mean((0, 1))
        assert of_row[::2] == weights.topk(8).indices.tolist()
        assert of_row[1::2] == pytest.approx(weights.topk(8).values.tolist(), abs=1e-4)


def test_attention_goes_where_the_extension_lets_it(example):
    assert example["queries"] == queries(example["tokens"][:-1])
    for line, keys in example["keys"].items():
        for query, row in zip(example["queries"], keys, strict=True):
            places, weights = row[::2], row[1::2]
            assert all(0 <= place <= query for place in places), line
            assert sorted(weights, reverse=True) == weights
            assert 0 < sum(weights) <= 1.0001
            if line.startswith("window"):
                assert all(query - place < 100 for place in places)
    far = [q - k for q, row in zip(example["queries"], example["keys"]["rope"], strict=True) for k in row[::2]]
    assert max(far) > 100


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        ((), ("rope", "rerope+log_n")),
        (("rope",), ("rope", "rerope+log_n")),
        (("yarn",), ("rope", "yarn")),  # one alone stands beside the unchanged model
        (("yarn", "rope"), ("yarn", "rope")),
        (("pi", "ntk", "yarn"), ("pi", "ntk")),
    ],
)
def test_the_lines_at_first(asked, shown):
    assert first_lines(asked) == shown


@pytest.fixture(scope="module")
def shown(tmp_path_factory, example):
    """A page with an example, in which the base model breaks."""
    torn = {"kind": "breaks", "at": 600, "more": 0.0}
    place = tmp_path_factory.mktemp("example") / "page.html"
    changed = example | {"found": example["found"] | {"rope": torn, LINES[0]: {"kind": "reads_on", "at": 0, "more": 0}}}
    facts = Facts(trained_len=512, head_dim=64, heads=4, layers=6)
    place.write_text(html(facts, lines=LINES, target_len=768, example=changed), "utf-8")
    assert place.stat().st_size < 1_500_000
    return place.as_uri()


def test_the_page_opens_with_what_the_model_showed(opened, shown):
    page = opened("#lang=en&a=rope&b=rerope+log_n", address=shown, **DESK)
    assert page.text_content("#lead-sentence") == "The base model breaks at 600 tokens; rerope+log_n reads on to 768."
    assert page.locator("#lead .uplot").count() == 1
    page.focus("#lead-curve .u-over")
    page.keyboard.press("End")
    assert page.text_content("#lead-curve .readout").startswith("Token 767: base model ")
    page.fill("#line-b", "yarn")
    page.wait_for_function(
        "() => document.querySelector('#lead-missing').textContent.includes('ropewalk page default rope yarn --to 768')"
    )
    assert page.text_content("#lead-sentence") == "The base model breaks at 600 tokens."
    page.click("button[data-language=zh]")
    page.wait_for_function(
        "() => document.querySelector('#lead-sentence').textContent === '原模型在 600 token 处失效。'"
    )


def test_the_base_model_stands_beside_two_extensions(opened, shown, example):
    page = opened("#lang=en&a=rerope%2Blog_n&b=window:window=100", address=shown, **DESK)
    titles = page.locator("#lookup-keys h3")
    assert titles.all_text_contents() == ["A rerope+log_n", "B window:window=100", "base model"]
    place, key = example["queries"][-1], example["keys"]["rope"][-1][0]
    assert f"{place - key:,} back" in page.locator("#lookup-keys .side-base tr").first.text_content()
    page.fill("#line-a", "rope")
    page.wait_for_function("() => document.querySelectorAll('#lookup-keys h3').length === 2")


def test_names_of_marks_stand_above_the_plot(opened, shown):
    """Two lines, at 512 and 600 tokens: two rows of 14 pixels over the plot."""
    page = opened("#lang=en&a=rope&b=rerope%2Blog_n", address=shown, **DESK)
    chart, plot = (page.locator(f"#lead-curve {part}").bounding_box() for part in (".u-wrap", ".u-over"))
    assert plot["y"] - chart["y"] >= 2 * 14


def test_a_picture_names_its_lines_and_the_page_its_model(opened, shown, example):
    page = opened("#lang=en&a=rope&b=rerope%2Blog_n", address=shown, **DESK)
    assert page.title() == f"rope | rerope+log_n · {example['model']} · Ropewalk"
    assert page.text_content("#model-summary").startswith(f"{example['model']}, trained on 512 tokens")
    for name in ("lead-curve-rope-rerope+log_n", "matrix-b-rerope+log_n", "lookup-rope-rerope+log_n", "walk-1"):
        figure = name.partition("-r")[0].removesuffix("-1")
        with page.expect_download() as saved:
            page.click(f"#{figure} .save")
        assert saved.value.suggested_filename == f"ropewalk-{name}.png"
    told = "(id) => Ropewalk.share.source(document.getElementById(id))"
    assert "B: rerope+log_n · 768 tokens · 1.5× · " in page.evaluate(told, "matrix-b")
    assert "A: rope · B: rerope+log_n · " in page.evaluate(told, "decay")
    assert page.text_content("#lead-missing") == ""
    page.fill("#to", "0")
    page.wait_for_function("() => document.querySelector('#lead-missing').textContent.includes('read at 768 tokens')")


def test_keys_of_the_token_under_the_pointer_or_the_keyboard(opened, shown, example):
    page = opened("#lang=en&a=rope&b=window:window=100", address=shown, **DESK)
    buttons = page.locator("#lookup-text button")
    assert buttons.count() == len(example["queries"]) == 24
    assert page.text_content("#lookup-text") == "".join(example["tokens"])
    buttons.nth(3).hover()
    place = example["queries"][3]
    assert page.text_content("#lookup-said").endswith(f"token {place:,}")
    buttons.nth(3).focus()
    page.keyboard.press("ArrowRight")
    place = example["queries"][4]
    assert page.text_content("#lookup-said").endswith(f"token {place:,}")
    rows = page.locator("#lookup-keys .side-b tr")
    assert rows.count() == 8
    key = example["keys"]["window:window=100"][4][0]
    assert f"{place - key:,} back" in rows.first.text_content()
    assert page.locator("#lookup-keys .side-a path").count() == 8
    rows.first.hover()
    assert page.locator("#lookup-text .pointed").text_content() == example["tokens"][key]
    assert page.locator("#lookup-keys .side-b .arc.pointed").count() == 1
    widths = page.locator("#lookup-keys i").evaluate_all("(bars) => bars.map((bar) => parseFloat(bar.style.width))")
    weights = [weight for line in ("rope", "window:window=100") for weight in example["keys"][line][4][1::2]]
    assert widths == pytest.approx([100 * weight / max(weights) for weight in weights], abs=0.6)  # one scale for both


def test_a_model_with_weights_and_without_a_tokenizer(tmp_path, capsys):
    tiny("llama").save_pretrained(tmp_path / "model")
    place = tmp_path / "page.html"
    assert run(["page", str(tmp_path / "model"), "-o", str(place)]) == 0
    assert "no text is read with the model: " in capsys.readouterr().err
    assert given(place.read_text("utf-8"))["example"] is None
    assert run(["page", str(tmp_path / "model"), "--read", "-o", str(place)]) == 2
    assert "tokenizer" in capsys.readouterr().err


def test_what_takes_long_is_read_where_it_is_asked_for(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("ropewalk.page.example.MOST_UNASKED", 0.0)
    place = tmp_path / "page.html"
    assert run(["page", "default", "pi", "--to", "768", "-o", str(place)]) == 0
    said = capsys.readouterr().err
    assert re.search(
        r"no text is read with the model: reading \d .* under rope, pi takes about .*; --read reads it", said
    )
    assert given(place.read_text("utf-8"))["example"] is None
    monkeypatch.setattr("ropewalk.cli.verbs.page.LARGEST", 0)
    assert run(["page", "default", "-o", str(place)]) == 0
    assert "since the weights are large; --read reads texts" in capsys.readouterr().err


def test_a_text_is_read_unless_it_is_left_out(tmp_path, capsys):
    place = tmp_path / "page.html"
    assert run(["page", "default", "pi", "--to", "768", "-o", str(place)]) == 0
    said = capsys.readouterr().err
    assert re.search(
        r"reading 4 held-out texts of 768 tokens under rope, pi: about \d+ s; --no-read leaves it out", said
    )
    data = given(place.read_text("utf-8"))
    assert set(data["example"]["losses"]) == {"rope", "pi"}
    assert data["first"] == {"a": "rope", "b": "pi", "to": 768}
    assert run(["page", "default", "--no-read", "-o", str(place)]) == 0
    assert capsys.readouterr().err == ""
    assert given(place.read_text("utf-8"))["example"] is None
    assert run(["page", "--read", "-o", str(place)]) == 2
