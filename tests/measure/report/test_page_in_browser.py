"""The pages in a real browser: every width, light and dark, by mouse, by keyboard, on paper and without scripts."""

import base64
import gzip
import shutil
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from ropewalk.measure.diagnostics.diagnosis import measure_sides
from ropewalk.measure.report.comparison import write_report
from ropewalk.measure.report.diagnosis import write_diagnosis
from ropewalk.measure.report.drawing.charts import style_of
from ropewalk.measure.report.streaming import write_streamed
from ropewalk.search.report import write_fit

from browser import watched, why_not
from measure.report.made_up import HOSTILE, LONG, comparison
from measure.report.made_up_stream import streamed
from measure.subjects import subject
from search.made_up_fit import fitted

pytestmark = [pytest.mark.skipif(bool(why_not()), reason=why_not()), pytest.mark.nightly]

WIDTHS = (1280, 768, 390)
NAMES = {
    "two": ["yarn", "rerope+log_n"],
    "nine": [f"method_{n}" for n in range(9)],
    "twenty": [f"method_{n}:factor={n}" for n in range(20)],
    "long": [f"{LONG}{n}" for n in range(5)],
    "hostile": [HOSTILE, "\"'><script>alert(1)</script>"],
}
# Elements whose boxes leave the window: what is in a box of its own that scrolls may.
BEYOND = """() => [...document.querySelectorAll('body *')].filter(e => {
    const box = e.getBoundingClientRect();
    return box.width && !e.closest('.wide-box, pre, .canvas') && (box.right > innerWidth + 1 || box.left < -1);
}).map(e => e.outerHTML.slice(0, 120))"""
# Pairs of words in one figure whose boxes touch.
TOUCHING = """() => [...document.querySelectorAll('.chart')].flatMap(chart => {
    const words = [...chart.querySelectorAll('.name, .value, .note')].filter(e => e.textContent.trim());
    const boxes = words.map(e => e.getBoundingClientRect());
    const pairs = [];
    for (let i = 0; i < words.length; i++) for (let j = 0; j < i; j++) {
        const a = boxes[i], b = boxes[j];
        const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (across > 1 && down > 4) pairs.push(`${words[i].textContent} | ${words[j].textContent}`);
    }
    return pairs;
})"""
# Charts without ink of their own: those whose pixels are fewer than a few hundred.
BLANK = """() => [...document.querySelectorAll('.canvas')].filter(box => {
    const canvas = box.querySelector('canvas'), { width, height } = canvas;
    const { data } = canvas.getContext('2d').getImageData(0, 0, width, height);
    let inked = 0;
    for (let i = 3; i < data.length; i += 4) inked += data[i] > 40;
    return box.clientWidth < 100 || width < box.clientWidth - 1 || inked < 100;
}).map(box => box.closest('figure').id)"""
# Whether a colour of the style sheet is on a canvas.
HAS = """([selector, name]) => {
    const canvas = document.querySelector(`${selector} canvas`);
    const probe = document.createElement('canvas').getContext('2d');
    probe.fillStyle = getComputedStyle(document.documentElement).getPropertyValue(`--${name}`);
    probe.fillRect(0, 0, 1, 1);
    const [r, g, b] = probe.getImageData(0, 0, 1, 1).data;
    const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    for (let i = 0; i < data.length; i += 4)
        if (data[i] === r && data[i + 1] === g && data[i + 2] === b && data[i + 3] === 255) return true;
    return false;
}"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """A page of each verb, and of `compare` with few, many, long and hostile names."""
    place = tmp_path_factory.mktemp("pages")
    command = f"ropewalk compare {HOSTILE}"
    written = {
        name: write_report(
            comparison(names, model=HOSTILE if name == "hostile" else "small"), place / name, command=command
        )
        for name, names in NAMES.items()
    }
    rates = [-0.05, float("nan"), float("inf"), 3.0]
    written["broken"] = write_report(comparison(["good", "nan", "inf", "broken"], rates=rates), place / "broken")
    written["one"] = write_report(comparison(["yarn"], texts=1, lengths=(64,)), place / "one")
    written["fit"] = write_fit(fitted(), place / "fit", command="ropewalk fit")
    settings = {"line": HOSTILE, "model": "small", "corpus": HOSTILE, "command": "ropewalk stream"}
    written["stream"] = write_streamed(streamed(), place / "stream", trained_len=512, settings=settings)
    diagnosis = measure_sides(subject(place, longest=64), "window:window=8")
    written["diagnose"] = write_diagnosis(diagnosis, place / "diagnose", command="ropewalk diagnose")
    return {name: path.as_uri() for name, path in written.items()}


@contextmanager
def opened(chromium, address, width=1280, **options):
    """A page, what it said, and the end of both."""
    context = chromium.new_context(viewport={"width": width, "height": 900}, **options)
    page = context.new_page()
    page.on("dialog", lambda dialog: pytest.fail(f"a script of a name ran: {dialog.message}"))
    page.said, page.raised, page.asked = watched(page)
    page.goto(address)
    yield page
    context.close()


ALL = (*NAMES, "broken", "one", "fit", "stream", "diagnose")


@pytest.mark.parametrize("name", ALL)
def test_a_page_fits_is_silent_and_asks_for_nothing(chromium, pages, name):
    """At every width, in both modes: no words touch or leave the window, and every chart is drawn in their colours."""
    with opened(chromium, pages[name]) as page:
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate(BEYOND) == []
            assert page.evaluate(TOUCHING) == []
            page.wait_for_function(
                "w => [...document.querySelectorAll('.canvas canvas')].every(c => c.clientWidth < w)", arg=width
            )
            assert page.evaluate(BLANK) == []
            for scheme, light in (("light", True), ("dark", False)):
                page.emulate_media(color_scheme=scheme)
                assert page.evaluate("document.scrollingElement.scrollWidth") <= width
                paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
                assert (paper == "rgb(255, 255, 255)") == light
        assert (page.said, page.raised) == ([], [])
        assert page.asked == [pages[name]]


def test_sent_alone_it_has_all_that_it_links_to(chromium, pages, tmp_path):
    """From an empty folder every link gives the file that lay beside the page, and nothing is asked for."""
    made = Path(unquote(urlsplit(pages["two"]).path))
    alone = Path(shutil.copy(made, tmp_path))
    with opened(chromium, alone.as_uri()) as page:
        links = page.locator("a[href]").all()
        with page.expect_download() as waited:
            links[0].click()
        assert waited.value.suggested_filename == links[0].get_attribute("download")
        for link in links:
            name, (kind, _, content) = link.get_attribute("download"), link.get_attribute("href").partition(";base64,")
            assert kind.startswith("data:")
            got = base64.b64decode(content, validate=True)
            name, got = (name[:-3], gzip.decompress(got)) if name.endswith(".gz") else (name, got)
            assert got == (made.parent / name).read_bytes(), name
        assert len(links) == len(list(made.parent.iterdir())) - 1
        assert [address for address in page.asked if not address.startswith("data:")] == [alone.as_uri()]


def column(page, number):
    return [row.locator("> *").nth(number).inner_text() for row in page.locator("#table tbody tr").all()]


def test_a_table_sorts_by_mouse_and_by_keyboard(chromium, pages):
    with opened(chromium, pages["nine"]) as page:
        first = column(page, 0)
        head = page.locator("#table thead th").nth(4)  # the change, whose best stands at the top
        head.locator("button").click()
        assert head.get_attribute("aria-sort") == "ascending"
        assert column(page, 0) == first
        head.locator("button").press("Enter")
        assert head.get_attribute("aria-sort") == "descending"
        changes = [float(text.split()[0]) for text in column(page, 4)]
        assert changes == sorted(changes, reverse=True)
        page.locator("#table thead th button").first.press("Space")
        assert column(page, 0) == sorted(first)
        assert head.get_attribute("aria-sort") == "none"


def test_charts_are_drawn_in_the_colours_of_the_mode(chromium, pages):
    with opened(chromium, pages["two"]) as page:
        for scheme in ("dark", "light"):
            page.emulate_media(color_scheme=scheme)
            for name in ("c0", "c3", "base"):
                page.wait_for_function(HAS, arg=["#loss_by_length", name])
        assert not page.evaluate(HAS, ["#loss_by_length", "c2"])


def test_a_line_that_several_share_stays_for_each_of_them(chromium, pages):
    """Methods with the same rotations: isolating any of them leaves the line, isolating another one does not."""
    with opened(chromium, pages["nine"]) as page:
        shared = page.locator("#turns_by_pair .legend [data-series*=' ']").first
        keys = shared.get_attribute("data-series").split()
        for key in keys[:2]:
            page.locator(f"#change [data-series='{key}'] .name").hover()
            assert float(shared.evaluate("e => getComputedStyle(e).opacity")) == 1
            page.wait_for_function(HAS, arg=["#turns_by_pair", style_of(int(keys[0]))[0]])
        every = page.locator("#change .legend li").evaluate_all("all => all.map(e => e.dataset.series)")
        other = next(key for key in every if key not in keys)
        page.locator(f"#change [data-series='{other}'] .name").hover()
        assert float(shared.evaluate("e => getComputedStyle(e).opacity")) < 0.3


def opacity(page, figure, key):
    part = page.locator(f"#{figure} [data-series='{key}']").first
    return float(part.evaluate("e => getComputedStyle(e).opacity"))


def test_hover_isolates_a_method_everywhere(chromium, pages):
    with opened(chromium, pages["two"]) as page:
        assert opacity(page, "change", 3) == 1
        page.locator("#loss_by_position [data-series='0'] .name").hover()
        for figure in ("change", "loss_by_position", "loss_by_length", "passkey_by_length"):
            assert opacity(page, figure, 0) == 1
            assert opacity(page, figure, 3) < 0.3
        page.wait_for_function(HAS, arg=["#loss_by_length", "c0"])
        assert not page.evaluate(HAS, ["#loss_by_length", "c3"])
        page.mouse.move(0, 0)
        assert opacity(page, "change", 3) == 1
        page.wait_for_function(HAS, arg=["#loss_by_length", "c3"])


def at(page, figure):
    return page.locator(f"#{figure} .at").inner_text()


def test_values_follow_the_pointer_and_return(chromium, pages):
    with opened(chromium, pages["two"]) as page:
        plot = page.locator("#loss_by_length .u-over")
        value = page.locator("#loss_by_length [data-series='0'] .value")
        usual = value.inner_text()
        plot.scroll_into_view_if_needed()
        box = plot.bounding_box()
        page.mouse.move(box["x"] + 20, box["y"] + 100)
        assert at(page, "loss_by_length") == "64"
        assert value.inner_text() == "0.00" != usual
        page.mouse.move(box["x"] + box["width"] - 20, box["y"] + 100)
        assert at(page, "loss_by_length") == "256"
        page.mouse.move(0, 0)
        assert value.inner_text() == usual
        assert at(page, "loss_by_length") == ""


def test_the_keyboard_does_the_same(chromium, pages):
    with opened(chromium, pages["two"]) as page:
        plots, chosen = page.locator("#loss_by_length .plots"), page.locator("#loss_by_length .legend .chosen")
        plots.focus()
        page.keyboard.press("ArrowLeft")
        assert at(page, "loss_by_length") == "128"
        page.keyboard.press("ArrowDown")
        assert chosen.count() == 1
        first = chosen.get_attribute("data-series")
        page.keyboard.press("ArrowDown")
        assert chosen.get_attribute("data-series") != first
        plots.blur()
        assert page.locator(".isolating").count() == 0
        assert at(page, "loss_by_length") == ""


def test_a_dot_says_what_it_is(chromium, pages):
    with opened(chromium, pages["fit"]) as page:
        plot = page.locator("#history .u-over")
        plot.scroll_into_view_if_needed()
        box = plot.bounding_box()
        trial = 3  # of four, on an axis from -0.5 to 3.5; 2.4 on an axis from 2.39 to 2.55
        page.mouse.move(box["x"] + box["width"] * (trial + 0.5) / 4, box["y"] + box["height"] * 0.15 / 0.16)
        assert at(page, "history").startswith("trial 3: loss 2.400")
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        assert at(page, "history") == ""


def test_a_row_of_the_table_pins_a_method(chromium, pages):
    with opened(chromium, pages["two"]) as page:
        button = page.locator("#table .pick").first
        key = page.locator("#table tbody tr").first.get_attribute("data-series")
        button.focus()
        assert page.locator("#change .legend .chosen").get_attribute("data-series") == key
        page.keyboard.press("Enter")
        assert button.get_attribute("aria-pressed") == "true"
        button.blur()
        assert page.locator("#change .legend .chosen").get_attribute("data-series") == key
        page.keyboard.press("Escape")
        assert page.locator(".isolating").count() == 0
        assert button.get_attribute("aria-pressed") == "false"


def test_the_switch_draws_on_a_logarithmic_scale(chromium, pages):
    """Where the broken line stays on the scale, so its colour reaches the right edge."""
    with opened(chromium, pages["broken"]) as page:
        figure = page.locator("#loss_by_length")
        broken = figure.locator(".legend li", has_text="broken").locator(".value")
        assert broken.inner_text() == "▲ +6.00"
        before = figure.locator("canvas").evaluate("e => e.toDataURL()")
        figure.locator(".switch").check()
        page.mouse.move(0, 0)
        assert figure.locator("canvas").count() == 1
        assert figure.locator("canvas").evaluate("e => e.toDataURL()") != before
        figure.locator(".u-over").hover()
        page.mouse.move(0, 0)
        assert broken.inner_text() == "+6.00"


def test_a_map_reads_out_the_number_under_the_pointer(chromium, pages):
    with opened(chromium, pages["diagnose"]) as page:
        plot = page.locator("#entropy_by_layer .u-over").first
        plot.scroll_into_view_if_needed()
        plot.hover()
        words = page.locator("#entropy_by_layer .reading").first.inner_text()
        assert words.startswith("layer ")
        layer, rest = words.removeprefix("layer ").split(", ")
        place, value = rest.split(": ")
        panel = page.evaluate("JSON.parse(document.getElementById('charts').textContent).entropy_by_layer.panels[0]")
        assert panel["cells"][int(layer)][panel["places"].index(int(place.replace(",", "")))] == float(value)


def test_on_a_phone_every_column_can_be_reached(chromium, pages):
    """The table scrolls in its own box, the names of its rows stay, and the page is not much longer for it."""
    with opened(chromium, pages["nine"], 390) as page:
        box, row = page.locator("#table .wide-box"), page.locator("#table tbody tr").first
        assert box.bounding_box()["height"] < 900
        for cell in row.locator("td").all():
            cell.evaluate("e => e.closest('.wide-box').scrollTo(e.offsetLeft - 150, 0)")
            name, place = row.locator("th").bounding_box(), cell.bounding_box()
            assert name["x"] < 20
            assert place["x"] >= name["x"] + name["width"] - 1
            assert place["x"] + place["width"] <= 390
            assert cell.evaluate("e => e.scrollWidth <= e.clientWidth + 1")
        button = page.locator("#table thead button").nth(4)
        button.click()
        assert page.locator("#table thead th").nth(4).get_attribute("aria-sort") == "ascending"


def test_in_between_a_wide_table_scrolls_in_its_own_box(chromium, pages):
    with opened(chromium, pages["long"], 768) as page:
        box = page.locator("#table .wide-box")
        box.evaluate("e => { e.scrollLeft = 10000; }")
        last = page.locator("#table tbody tr").first.locator("td").last.bounding_box()
        assert last["x"] + last["width"] <= 768


def test_without_scripts_the_numbers_can_be_read(chromium, pages):
    with opened(chromium, pages["two"], java_script_enabled=False) as page:
        assert page.locator("noscript p").is_visible()
        assert page.locator("#table tbody tr").count() == 3
        assert page.locator("#change .legend .value").all_inner_texts()[0].startswith("−0.10 [")
        assert page.locator("#passkey_by_length .shares td.filled").first.is_visible()
        assert page.locator(".plots:visible").count() == 0
        table = page.locator("#loss_by_position details table")
        assert not table.is_visible()
        page.locator("#loss_by_position summary").click()
        assert table.locator("tr").count() == 1 + 3 * 16


@pytest.mark.parametrize("name", ["nine", "diagnose", "fit", "stream"])
def test_on_paper_it_is_light_unfolded_and_no_wider_than_the_paper(chromium, pages, name):
    with opened(chromium, pages[name], 690, color_scheme="dark") as page:
        page.emulate_media(media="print", color_scheme="dark")
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert page.evaluate("document.scrollingElement.scrollWidth") <= 690
        assert page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--paper')") == "#fff"
        assert page.locator(".tools:visible").count() == 0
        assert page.locator("details > :not(summary)").evaluate_all(
            "all => all.every(e => e.getBoundingClientRect().height > 0)"
        )
        page.evaluate("dispatchEvent(new Event('afterprint'))")
        assert page.locator("details[open]").count() == 0


def test_a_hostile_name_is_shown_as_it_is(chromium, pages):
    with opened(chromium, pages["hostile"]) as page:
        assert page.locator("h1").inner_text().startswith(HOSTILE)
        assert HOSTILE in page.title()
        assert page.locator("#table .pick span").all_inner_texts().count(HOSTILE) == 1
        assert page.locator("img").count() == 0
        assert HOSTILE in page.locator("#repeat pre").first.inner_text()
