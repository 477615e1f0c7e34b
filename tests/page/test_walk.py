"""The walk: its numbers by hand, and its steps in a browser."""

import math
import re
from dataclasses import replace
from pathlib import Path

import pytest

from ropewalk.methods.facts import Facts
from ropewalk.page import html
from ropewalk.page.assemble import USUAL
from ropewalk.page.walk import walk

pytestmark = pytest.mark.nightly

DESK, PHONE = ({"viewport": {"width": width, "height": 900}} for width in (1280, 390))
STEPS = 10
SMALL = Facts(trained_len=512, head_dim=64, heads=4, layers=6)


def test_its_numbers_by_hand():
    """Base 10,000, 32 pairs: pair i turns once in 2 pi 10000^(i/32) tokens; the first with more than 512 is pair 16."""
    numbers = walk(SMALL, 4096)
    assert numbers["beta"] == pytest.approx(10_000 ** (1 / 32))
    assert numbers["fast"] == pytest.approx(2 * math.pi)
    assert 2 * math.pi * 10_000 ** (15 / 32) < 512 < 2 * math.pi * 10_000 ** (16 / 32)
    assert numbers["partial"] == numbers["unseen"]["rope"] == 16
    assert numbers["unseen"]["pi"] == numbers["unseen"]["yarn"] == numbers["unseen"]["rerope"] == 0
    assert numbers["degrees"]["rope"] / numbers["degrees"]["pi"] == pytest.approx(8)
    assert numbers["degrees"]["ntk"] == pytest.approx(numbers["degrees"]["rope"])
    assert numbers["ntk_base"] == pytest.approx(10_000 * 8 ** (64 / 62))
    assert numbers["temperature"] == pytest.approx((0.1 * math.log(8) + 1) ** 2)
    assert sum(numbers["parts"].values()) == numbers["pairs"] == 32


def test_the_focus_by_hand():
    """A logit of ln 511 among 511 others of 0 has half; among 4,095 it has 511 / 4,606; log-n multiplies it by 4/3."""
    focus = walk(SMALL, 4096)["focus"]
    assert focus["trained"] == pytest.approx(0.5)
    assert focus["plain"] == pytest.approx(511 / (511 + 4095))
    assert focus["factor"] == pytest.approx(math.log(4096) / math.log(512))
    assert focus["log_n"] == pytest.approx(511 ** (4 / 3) / (511 ** (4 / 3) + 4095))


def test_distances_by_hand():
    distances = walk(SMALL, 4096)["distances"]
    assert all(far == distance for distance, far in distances["rope"]["at"])
    assert all(far == min(distance, 128) for distance, far in distances["rerope"]["at"])
    assert (distances["streaming"]["seen"], distances["streaming"]["furthest"]) == (512, 511)
    assert (distances["rerope"]["seen"], distances["rerope"]["furthest"]) == (4096, 128)


def test_none_where_nothing_is_longer():
    assert walk(SMALL, 512) is None


@pytest.fixture
def walking(opened, tmp_path):
    place = tmp_path / "page.html"
    place.write_text(html(SMALL, target_len=4096), "utf-8")
    return lambda fragment="#lang=en", **options: opened(fragment, address=place.as_uri(), **{**DESK, **options})


def test_every_step_by_button_and_by_key(walking):
    page = walking(reduced_motion="reduce")
    titles = []
    for step in range(1, STEPS + 1):
        assert page.text_content("#walk-count") == f"{step} / {STEPS}"
        assert "{" not in page.text_content("#walk-body")
        assert "undefined" not in page.text_content("#walk-body")
        assert page.locator("#walk-scene > *").first.bounding_box()["height"] > 100
        titles.append(page.text_content("#walk-title"))
        if step < STEPS:
            page.click("#walk-next") if step % 2 else page.press("#walk-play", "ArrowRight")
            page.wait_for_selector(f"#walk-count:text-is('{step + 1} / {STEPS}')")
    assert len(set(titles)) == STEPS
    assert page.is_disabled("#walk-next")
    page.press("#walk-play", "ArrowLeft")
    page.wait_for_selector("#walk-count:text-is('9 / 10')")
    assert "step=9" in page.evaluate("location.hash")


def test_what_is_new_is_red(walking):
    page = walking("#lang=en&step=3", reduced_motion="reduce")
    assert "16 slow pairs turn to angles" in page.text_content("#walk-words")
    assert page.text_content("#walk-position").startswith("Position 4,095.")
    assert page.locator("#walk .dials .fresh").count() == 4  # of the eight dials: pairs 18, 22, 27 and 31
    page.click("#walk-next")
    page.wait_for_selector("#walk-count:text-is('4 / 10')")
    assert page.locator("#walk .dials .fresh").count() == 0
    assert "57.3°" in page.text_content("#walk-words")
    assert "7.16°" in page.text_content("#walk-words")


def test_dials_say_the_period_of_their_step(walking):
    """By hand: pair 0 turns once in 2 pi tokens; under position interpolation by 8 in 16 pi, under NTK in 2 pi."""
    for step, tokens in ((3, "6.28 tokens"), (4, "50.3 tokens"), (5, "6.28 tokens")):
        page = walking(f"#lang=en&step={step}", reduced_motion="reduce")
        assert page.locator("#walk .dials g > text").nth(1).text_content() == tokens
    page = walking("#lang=en&step=6", reduced_motion="reduce")
    slowest = page.locator("#walk .dials g > text").last.text_content()
    assert slowest == f"{2 * math.pi * 10_000 ** (31 / 32) * 8:,.0f} tokens"  # YaRN slows it 8 times


def test_no_label_of_a_dial_runs_into_the_next(opened, tmp_path):
    place = tmp_path / "page.html"
    place.write_text(html(replace(SMALL, base=1_000_000.0), target_len=4096), "utf-8")
    page = opened("#lang=en&step=4", address=place.as_uri(), reduced_motion="reduce", **DESK)
    boxes = [label.bounding_box() for label in page.locator("#walk .dials g > text").all()]
    rows = {
        round(box["y"]): sorted(other["x"] for other in boxes if round(other["y"]) == round(box["y"])) for box in boxes
    }
    for box in boxes:
        assert all(x <= box["x"] or x >= box["x"] + box["width"] + 4 for x in rows[round(box["y"])])


def test_the_table_counts_as_the_steps_do(walking):
    """Far keys count as 128 in a step; the table says the same of the furthest."""
    page = walking("#lang=en&step=9", reduced_motion="reduce")
    assert "all beyond count as 128." in page.text_content("#walk-words")
    grouped = re.search(r"in groups instead, up to (\d+)", page.text_content("#walk-words"))[1]
    assert page.locator("#walk .plane text").all_text_contents()[-3:-1] == ["rope", "rerope"]
    page.click("#walk-next")
    page.wait_for_selector("#walk-count:text-is('10 / 10')")
    rows = {row.split("\t")[0]: row.split("\t")[2] for row in page.locator("#walk .costs tbody tr").all_inner_texts()}
    assert (rows["rope"], rows["streaming"], rows["rerope"]) == ("4,095", "511", "128")
    assert rows["self_extend"] == grouped
    assert 128 < int(grouped) < 512  # within training


def test_cards_do_not_touch(walking):
    page = walking("#lang=en")
    card, walk_card = (page.locator(name).bounding_box() for name in (".controls:not([hidden])", "#walk"))
    assert walk_card["y"] - card["y"] - card["height"] >= 12


def test_it_moves_unless_that_is_not_wished(walking):
    page = walking("#lang=en&step=2")
    page.wait_for_function("() => document.querySelector('#walk-position').textContent.startsWith('Position 511.')")
    page.evaluate("() => (window.seen = [])")
    page.evaluate(
        "() => new MutationObserver(() => seen.push(document.querySelector('#walk-position').textContent))"
        ".observe(document.querySelector('#walk-scene'), {childList: true, subtree: true, characterData: true})"
    )
    page.click("#walk-next")
    page.wait_for_function("() => document.querySelector('#walk-position').textContent.startsWith('Position 4,095.')")
    assert page.evaluate("new Set(seen).size") > 3
    still = walking("#lang=en&step=3", reduced_motion="reduce")
    assert 0 <= still.locator("#walk").bounding_box()["y"] < 450  # a link to a step shows it
    assert still.text_content("#walk-position").startswith("Position 4,095.")


def test_it_plays_and_pauses(walking):
    page = walking()
    page.click("#walk-play")
    assert page.text_content("#walk-play") == "Pause"
    page.click("#walk-next")
    assert page.text_content("#walk-play") == "Play"


def test_the_token_is_moved_by_hand_and_any_step_is_chosen(walking):
    page = walking("#lang=en&step=1", reduced_motion="reduce")
    page.click("#walk-steps button:text-is('3')")
    page.wait_for_selector("#walk-count:text-is('3 / 10')")
    assert (
        page.get_attribute("#walk-steps [aria-current=step]", "aria-label") == f"3: {page.text_content('#walk-title')}"
    )
    page.fill("#walk-slider", "512")
    assert page.text_content("#walk-position").startswith("Position 512.")
    assert page.locator("#walk .dials .fresh").count() == 0  # trained on 512 tokens
    page.press("#walk-slider", "ArrowRight")
    assert page.text_content("#walk-position").startswith("Position 513.")
    assert page.locator("#walk .dials .fresh").count() == 4
    assert page.text_content("#walk-count") == "3 / 10"
    page.click("#walk-next")  # the next step keeps the token where it was put
    page.wait_for_selector("#walk-count:text-is('4 / 10')")
    assert page.text_content("#walk-position").startswith("Position 513.")
    page.click("#walk-steps button:text-is('2')")  # as far as training went
    page.wait_for_selector("#walk-position:text('Position 511.')")


def test_the_walk_goes_as_far_as_the_slider_says(walking):
    page = walking("#lang=en&step=3&to=16384", reduced_motion="reduce")
    assert page.text_content("#walk-position").startswith("Position 16,383.")
    assert "32 times as far" in page.text_content("#walk-words")
    assert page.is_hidden("#walk-within")
    page.fill("#to", "0")  # within the trained length nothing is new: it says so, and shows the next length
    page.wait_for_selector("#walk-within:text('512 tokens, is within training')")
    assert page.text_content("#walk-position").startswith("Position 1,023.")


@pytest.mark.parametrize("language", ["en", "zh"])
def test_it_fits_a_phone(walking, language):
    for step in (3, 9, 10):
        page = walking(f"#lang={language}&step={step}", reduced_motion="reduce", **PHONE)
        assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0
        table = page.locator("#walk .wide")
        assert table.count() == 0 or table.evaluate("box => box.scrollWidth - box.clientWidth") == 0


def test_a_figure_is_saved_as_a_picture_and_a_link_is_copied(walking):
    page = walking("#lang=en&step=4", reduced_motion="reduce", permissions=["clipboard-read", "clipboard-write"])
    with page.expect_download() as saved:
        page.click("#decay .save")
    assert saved.value.suggested_filename == "ropewalk-decay-rope-rerope+log_n.png"
    head = Path(saved.value.path()).read_bytes()[:24]
    assert head.startswith(b"\x89PNG")
    assert int.from_bytes(head[16:20], "big") > 800
    page.click("#walk-steps button:text-is('3')")
    page.wait_for_selector("#walk-count:text-is('3 / 10')")
    drawn = page.evaluate(  # the walk, which is no canvas: dials with the angles that are new
        """() => Ropewalk.share.picture(document.getElementById("walk")).then((canvas) => {
          const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
          const pixels = [...new Uint32Array(data.buffer)];
          return pixels.filter((pixel) => pixel === 0xff2d2dcc).length / pixels.length; // --new, from its last byte
        })"""
    )
    assert 0.01 < drawn < 0.2
    page.click("#walk-steps button:text-is('4')")
    page.click("#share")
    page.wait_for_selector("#share:text-is('Copied')")
    assert page.evaluate("navigator.clipboard.readText()") == page.url
    assert "step=4" in page.url


def test_a_usual_model_has_it_too():
    assert walk(USUAL, 8 * USUAL.trained_len)["pairs"] == 64
