"""The page as people use it, from a file: in a real browser, with an empty console and no network."""

import hashlib
import json
import re
from html import unescape
from pathlib import Path

import pytest

from ropewalk import page as package
from ropewalk.extension.parsing import PRESETS, read_line
from ropewalk.methods.docstrings import FACTORS
from ropewalk.methods.facts import Facts
from ropewalk.page import html, warnings
from ropewalk.page.assemble import shortened
from ropewalk.page.catalogue import catalogue

HOSTILE = "<img src=x onerror=\"document.title='broken'\">"
PHONE, TABLET, DESK = ({"viewport": {"width": width, "height": 800}} for width in (390, 768, 1280))
LIBRARIES = Path(package.__file__).parent / "web" / "library"
LIBRARY = {
    "uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    "LICENSE": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
}
WIDER = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


def test_it_is_one_file_without_a_network(file):
    text = html()
    assert file.read_text("utf-8") == text
    assert len(text.encode()) < 1_500_000
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", text)
    assert "Copyright (c) 2022 Leon Sorokin" in text  # the licence of uPlot goes where uPlot goes
    assert all(name in text for name in [*FACTORS, *PRESETS])
    assert text.count("</script>") == text.count("<script>")


def test_no_text_of_a_script_spans_lines():
    """Their indentation is halved."""
    for path in Path(package.__file__).parent.glob("web/*/*.js"):
        if path.parent.name != "library":
            assert not [line for line in path.read_text("utf-8").splitlines() if line.count("`") % 2], path
    assert shortened("a {\n    // why\n    b;\n  }\n") == "a {\n  b;\n }\n"


@pytest.mark.sampled(cases=2)
@pytest.mark.parametrize("size", [PHONE, TABLET, DESK], ids=["phone", "tablet", "desk"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("language", ["en", "zh"])
def test_it_loads_at_every_size_in_both_modes_and_languages(opened, size, scheme, language):
    page = opened(f"#lang={language}&a=rope&b=streaming", color_scheme=scheme, **size)
    assert page.evaluate(WIDER) == 0
    assert page.locator(".uplot").count() == 6
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    light = sum(map(int, re.findall(r"\d+", background)[:3])) > 384
    assert light == (scheme == "light")


@pytest.mark.parametrize(("name", "digest"), LIBRARY.items())
def test_the_library_is_as_it_was_released(name, digest):
    """From the package index of npm, uplot 1.6.32: nothing of it was edited here."""
    assert hashlib.sha256((LIBRARIES / name).read_bytes()).hexdigest() == digest


def test_every_canvas_has_been_drawn_on(opened):
    page = opened("#a=rope&b=rerope", **DESK)
    blank = page.evaluate(
        """[...document.querySelectorAll("canvas")].filter((canvas) => {
          const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
          return new Set(new Uint32Array(data.buffer)).size < 3;
        }).length"""
    )
    assert blank == 0


def test_the_slider_moves_the_target_and_the_angles(opened):
    page = opened("#a=rope&to=8192", **DESK)
    assert "8,192 tokens · 2×" in page.text_content("#to-shown")
    first = page.text_content("#angles-a figcaption b:not(.badge)")
    page.focus("#to")
    for _ in range(2):
        page.keyboard.press("ArrowRight")
    page.wait_for_function("() => document.querySelector('#to-shown').textContent === '32,768 tokens · 8×'")
    assert "to=" not in page.evaluate("location.hash")  # the target at first
    # 4,096 trained tokens, base 10,000, 64 pairs: pair 46 is the first whose full turn, 2 pi 10000^(46/64) = 4,712
    # tokens, is longer than that; 46 to 63 are 18 pairs.
    assert page.text_content("#angles-a figcaption b:not(.badge)") == "18 of 64 pairs meet new angles"
    assert first == "18 of 64 pairs meet new angles"
    page.fill("#line-a", "yarn")
    page.wait_for_function(
        "() => document.querySelector('#angles-a figcaption').textContent.includes('every angle is known')"
    )


def test_a_line_is_described(opened):
    page = opened("#lang=en&a=self_extend%2Blog_n", **DESK)
    assert page.text_content("#about-a code") == "= self_extend:window=1024,group=19 + log_n"
    assert "log-n scaling of the logits" in page.text_content("#about-a > span")
    assert page.locator("#about-a math").count() == 2
    set_ = "".join(page.locator("#about-a math").first.text_content().split())
    assert "=⌊i/G⌋+w" in set_  # q_at = i//G + w - w//G
    assert page.locator("#about-a math [style]").count() == 0
    page.fill("#line-a", "hwfa")
    page.wait_for_function(
        "() => document.querySelector('#about-a code').textContent.includes('; in the last layer: ')"
    )


def test_a_line_that_is_not_in_the_page_names_the_command_that_writes_it(opened):
    page = opened("#lang=en", **DESK)
    before = page.text_content("#angles-a figcaption")
    page.fill("#line-a", "yarn:factor=3")
    page.wait_for_selector("#about-a .wrong")
    said = page.text_content("#about-a .wrong")
    assert "ropewalk page MODEL yarn:factor=3 rerope+log_n --to 32768" in said
    assert "ropewalk serve MODEL" in said
    assert page.get_attribute("#line-a", "aria-invalid") == "true"
    assert page.text_content("#angles-a figcaption") == before  # the last line that was drawn


@pytest.mark.sampled(cases=1)
@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("rerop", "There is no method 'rerop'; did you mean 'rerope'?"),
        ("yarn+logn", "There is no method 'logn'; did you mean 'log_n'?"),
        ("quite_another", "There is no method 'quite_another'."),
        ("yarn:faktor=3", "yarn has no parameter 'faktor'; did you mean 'factor'?"),
        ("interpolation:factor=2,x=1+log_n", "interpolation has no parameter 'x'; it takes factor."),
        ("yarn+", "Write a line as name:key=value,...+name..."),
        ("yarn:3", "Write a line as name:key=value,...+name..."),
    ],
)
def test_a_wrong_name_is_refused_and_kept_out_of_the_address(opened, typed, said):
    page = opened("#lang=en", **DESK)
    page.fill("#line-a", "pi")
    page.wait_for_function("() => location.hash === '#a=pi&lang=en'")
    page.fill("#line-a", typed)
    page.wait_for_selector("#about-a .wrong")
    assert page.text_content("#about-a .wrong") == said
    assert page.locator("#use-a li").all_inner_texts() == [said, "The figures above show pi in its place."]
    assert page.locator("#use-a pre, #use-both pre").count() == 0  # no command of a line that is refused
    assert page.evaluate("location.hash") == "#a=pi&lang=en"
    assert page.title() == "pi | rerope+log_n · a usual Llama · Ropewalk"


def test_an_empty_field_gets_its_line_back(opened):
    page = opened("#lang=en&a=pi&b=", **DESK)
    assert page.input_value("#line-b") == "rerope+log_n"
    page.fill("#line-a", "")
    assert page.get_attribute("#line-a", "aria-invalid") == "false"
    page.focus("#line-b")
    page.wait_for_function("() => document.querySelector('#line-a').value === 'pi'")


@pytest.mark.nightly
def test_parameters_that_python_takes_are_no_mistakes(scripts):
    """Every method and preset with each of its parameters, by Python's own reading of the line."""
    for name, about in catalogue().items():
        for key in about["takes"]:
            line = f"{name}:{key}=1e+5+log_n"
            read_line(line)
            assert scripts.evaluate("(line) => Ropewalk.lines.problem(line)", line) is None
        with pytest.raises(ValueError, match="no_such"):
            read_line(f"{name}:no_such=1")
        assert "no_such" in scripts.evaluate("(line) => Ropewalk.lines.problem(line)", f"{name}:no_such=1")


@pytest.mark.nightly
def test_the_model_is_named(opened, tmp_path):
    assert (
        opened("#lang=en", **DESK).text_content("#model-summary").startswith("a usual Llama, trained on 4,096 tokens")
    )
    place = tmp_path / "page.html"
    place.write_text(html(Facts(trained_len=512, head_dim=64, heads=4, layers=6), model="small"), "utf-8")
    page = opened("#lang=en", address=place.as_uri(), **DESK)
    assert page.text_content("#model-summary").startswith("small, trained on 512 tokens")
    assert page.title() == "rope | rerope+log_n · small · Ropewalk"


@pytest.mark.nightly
def test_chinese_at_first_where_the_browser_speaks_it_and_by_the_switch(opened):
    page = opened(locale="zh-CN", **DESK)
    assert page.evaluate("document.documentElement.lang") == "zh-Hans"
    assert page.text_content("#schedule h2") == "频率方案"
    page.click("button[data-language=en]")
    page.wait_for_function("() => document.documentElement.lang === 'en'")
    assert page.text_content("#schedule h2") == "Schedule"
    assert "lang=en" in page.evaluate("location.hash")
    assert opened(locale="de-DE", **DESK).text_content("#schedule h2") == "Schedule"


@pytest.mark.nightly
def test_what_a_method_does_is_said_in_the_language_of_the_page(opened):
    page = opened("#lang=zh&a=yarn%2Blog_n", **DESK)
    for language, word in (("zh", "chinese"), ("en", "idea")):
        page.click(f"button[data-language={language}]")
        page.wait_for_function("(wanted) => document.documentElement.lang.startsWith(wanted)", arg=language)
        yarn, log_n = (catalogue()[name][word] for name in ("yarn", "log_n"))
        assert page.locator("#about-a span").first.text_content() == f"{yarn} {log_n}"
        assert page.locator("#names option[value=yarn]").text_content() == yarn
        noted = "截断" if language == "zh" else "clipped"
        assert re.search(f"strength.*{noted}", page.locator("#about-a math").last.text_content())  # names stay


def test_ideas_in_chinese_are_of_what_is_there():
    """A method may wait for somebody who writes Chinese, as one of a contributor does; a few may, not many."""
    written = json.loads((Path(warnings.__file__).parent / "web" / "ideas.zh.json").read_text("utf-8"))
    assert set(written) <= set(catalogue())
    assert len(catalogue()) - len(written) <= 3
    for name, idea in written.items():
        assert idea.endswith("。"), name
        for number in re.findall(r"\d[\d,.]*\d|`\w+`", catalogue()[name]["idea"]):
            assert number in idea, name


def test_every_word_is_there_in_both_languages(scripts):
    words = scripts.evaluate("Ropewalk.words.WORDS")
    for name, (english, chinese) in words.items():
        assert sorted(re.findall(r"\{\w+\}", english)) == sorted(re.findall(r"\{\w+\}", chinese)), name
        assert chinese
    named = scripts.evaluate("[...document.querySelectorAll('[data-word]')].map((each) => each.dataset.word)")
    assert set(named) <= set(words)
    formulas = " ".join(page.get("math", "") for page in catalogue().values())
    noted = {unescape(text).strip("\xa0") for text in re.findall(r"<mtext>(.*?)</mtext>", formulas)}
    values = {"over", "pairs", "kept", "centred", "scale temperature"}  # parameters and values of them
    assert len(noted - values - set(scripts.evaluate("Ropewalk.words.NOTES"))) <= 3  # as of ideas in Chinese
    used = set(re.findall(r"\bt\(\"(\w+)\"", html()))
    warned = set(re.findall(r"\"(warn_\w+)\"", Path(warnings.__file__).read_text()))
    assert used | warned <= set(words)
    assert {word for word in words if word.startswith("warn_")} == warned


@pytest.mark.nightly
def test_a_link_shows_the_same_again(opened):
    page = opened("#lang=en", **DESK)
    page.fill("#line-a", "self_extend+log_n")
    page.focus("#to")
    page.keyboard.press("ArrowRight")
    page.wait_for_function("() => location.hash === '#a=self_extend+log_n&to=65536&lang=en'")
    again = opened(page.evaluate("location.hash"), **DESK)
    for selector in ("#about-a", "#model-summary", "#to-shown", "#matrix-a figcaption", "#use"):
        assert again.text_content(selector) == page.text_content(selector)
    assert again.input_value("#line-a") == "self_extend+log_n"


@pytest.mark.nightly
@pytest.mark.parametrize(
    "fragment",
    [
        "#to=9e9&trained=x",
        "#to=-1&a=%00&b=",
        "#to=x&a=__proto__&b=constructor",
        "#a=biases.sandwich:width=2000000000&to=0.5",
        "#=&a&lang=xx&to=",
    ],
)
def test_a_broken_link_shows_something_all_the_same(opened, fragment):
    assert opened(fragment, **DESK).locator(".uplot").count() == 6


@pytest.mark.nightly
def test_text_of_users_is_never_read_as_html(opened):
    page = opened("#lang=en", **DESK)
    for field in ("#line-a", "#line-b"):
        page.fill(field, HOSTILE)
    page.wait_for_function("() => document.querySelectorAll('.wrong').length === 2")
    linked = opened(f"#a={HOSTILE}&b={HOSTILE}", **DESK)
    for one in (page, linked):
        assert one.evaluate("document.querySelectorAll('img').length") == 0
        assert one.title() != "broken"


@pytest.mark.nightly
def test_the_matrix_is_read_by_pointer_and_keyboard(opened):
    page = opened("#lang=en&a=rope&b=streaming", **DESK)
    canvas = page.locator("#matrix-a canvas")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + 2, box["y"] + box["height"] - 2)
    said = page.text_content("#matrix-a .readout")
    query, key, true, distance = (int(n.replace(",", "")) for n in re.findall(r"[\d,]*\d", said))
    assert query - key == true == distance
    assert query > 32_000
    assert "effective distance" in page.text_content("#matrix-b .readout")  # a sink
    canvas.focus()
    for _ in range(3):
        page.keyboard.press("Shift+ArrowRight")
    assert "not seen" in page.text_content("#matrix-b .readout")
    moved = page.text_content("#matrix-a .readout")
    assert moved != said
    page.keyboard.press("Shift+ArrowUp")
    assert page.text_content("#matrix-a .readout") != moved


def test_charts_are_read_with_the_keyboard(opened):
    page = opened("#lang=en&a=pi", **DESK)
    page.focus("#angles-a .u-over")
    page.keyboard.press("Home")
    # Base 10,000: the first pair makes 4096 / 2 pi = 651.9 rotations in training, and as many under pi.
    assert page.text_content("#angles-a .readout") == (
        "Pair 0: wavelength 50.3 tokens, 652 rotations in training, 652 in this text"
    )
    page.keyboard.press("ArrowRight")
    assert page.text_content("#angles-a .readout").startswith("Pair 1:")


def test_everything_is_reached_by_the_tab_key_and_has_a_name(opened):
    page = opened("#lang=en", **DESK)
    names = []
    for _ in range(90):
        page.keyboard.press("Tab")
        name = page.evaluate(
            """() => {
              const at = document.activeElement;
              if (at === document.body) return null;
              const labels = [...(at.labels ?? [])].map((label) => label.textContent).join(" ");
              const outline = getComputedStyle(at).outlineStyle;
              return [at.id || at.tagName, (at.ariaLabel || labels || at.textContent).trim(), outline];
            }"""
        )
        if name is None:
            break
        names.append(name)
    reached = [name for name, *_ in names]
    assert {"line-a", "line-b", "to", "CANVAS", "SUMMARY"} <= set(reached)
    assert reached.count("CANVAS") == 2
    assert reached.count("DIV") == 6  # the charts
    assert all(label for _, label, _ in names)
    assert all(outline != "none" for *_, outline in names)


@pytest.mark.nightly
def test_two_methods_are_compared_with_the_keyboard_alone(opened):
    page = opened("#lang=zh", **DESK)

    def reach(wanted):
        for _ in range(40):
            page.keyboard.press("Tab")
            if page.evaluate("(wanted) => document.activeElement.matches(wanted)", wanted):
                return
        raise AssertionError(f"{wanted} is not reached")

    reach("[data-language=en]")
    page.keyboard.press("Enter")
    for side, line in (("a", "rope"), ("b", "self_extend")):
        reach(f"#line-{side}")
        page.keyboard.press("Control+A")
        page.keyboard.type(line)
    reach("#to")
    page.keyboard.press("ArrowLeft")
    reach("#matrix-a canvas")
    for _ in range(3):
        page.keyboard.press("Shift+ArrowRight")
    # 16,384 tokens in 64 steps of 256: the last query, and column 24.
    assert page.text_content("#matrix-a .readout") == (
        "Query 16,383, key 6,144: 10,239 tokens apart, effective distance 10,239"
    )
    # Self-Extend with a window of 1,024 and groups of ceil(15,360 / 1,706.7) = 9: 16,383//9 + 1,024 - 113 - 6,144//9.
    assert page.text_content("#matrix-b .readout") == (
        "Query 16,383, key 6,144: 10,239 tokens apart, effective distance 2,049"
    )


def test_commands_are_copied(opened):
    page = opened("#lang=en&a=yarn", permissions=["clipboard-read", "clipboard-write"], **DESK)
    page.locator("#use-a .snippet button").first.click()
    page.wait_for_selector("text=Copied")
    assert page.evaluate("navigator.clipboard.readText()").startswith("ropewalk generate MODEL yarn --to 32768")


@pytest.mark.nightly
@pytest.mark.parametrize("model", ["default", "org/small-1.5", "my model"])
def test_commands_name_a_model_that_is_found_anywhere_and_export_nothing_unchanged(opened, tmp_path, model):
    place, named = tmp_path / "page.html", "MODEL" if " " in model else model
    place.write_text(html(Facts(trained_len=512, head_dim=64, heads=4, layers=6), model=model), "utf-8")
    page = opened("#lang=en&a=rope&b=yarn", address=place.as_uri(), **DESK)
    assert page.locator("#use-a pre").all_inner_texts() == [f"ropewalk generate {named} rope --prompt-file book.txt"]
    first, python, served = page.locator("#use-b pre").all_inner_texts()
    assert first.splitlines()[1] == f"ropewalk export {named} yarn --to 4096 --target vllm -o FOLDER"
    assert python.endswith('rw.extend(model, "yarn", target_len=4096)')
    assert served == f"ropewalk export {named} yarn --to 4096 --config-only"  # by its own config, as Gemma needs
    of_a_llama = opened("#lang=en&b=yarn", **DESK).locator("#use-b pre").last
    assert of_a_llama.inner_text().startswith("vllm serve MODEL --hf-overrides")


def test_warnings(opened):
    page = opened("#lang=en&a=ntk&b=rerope%2Blog_n", **DESK)
    warnings = page.text_content("#use-a .warnings")
    assert "17 pairs meet angles that training never showed" in warnings
    assert "ntk reaches a quarter to half of its factor: for 8× write ntk:factor=16 or more" in warnings
    assert page.locator("#use-b .warnings li").all_inner_texts() == ["Nothing to warn about."]


@pytest.mark.nightly
def test_every_preset_is_drawn(opened):
    page = opened("#lang=en", **DESK)
    for name in PRESETS:
        page.fill("#line-a", name)
        page.wait_for_function("(name) => document.title.startsWith(name + ' |')", arg=name)
        assert page.get_attribute("#line-a", "aria-invalid") == "false", page.text_content("#about-a")
        assert page.locator(".uplot").count() == 6


@pytest.mark.nightly
def test_a_plus_in_an_address_is_a_plus(opened):
    page = opened("#a=rerope+log_n&b=yarn", **DESK)
    assert page.input_value("#line-a") == "rerope+log_n"
    page.focus("#to")
    page.keyboard.press("ArrowRight")
    page.wait_for_function("() => location.hash === '#a=rerope+log_n&b=yarn&to=65536'")


def test_less_motion_is_respected(opened):
    still = opened(reduced_motion="reduce", **DESK)
    assert still.evaluate("getComputedStyle(document.querySelector('.language button')).transitionDuration") == "0s"
