"""The live panels, with a server that answers as `ropewalk serve` does."""

import json

import pytest

import ropewalk as rw

from browser import watched
from page.fake_server import BASE, TRAINED, A, B, serving

pytestmark = pytest.mark.nightly

TEXT = " ".join(f"word{n}" for n in range(100))
HOSTILE = "<img src=x onerror=\"document.title='broken'\">"
PLAIN = "A base model: it continues your text."  # not said of models with a chat template
DESK = {"viewport": {"width": 1280, "height": 900}}


@pytest.fixture
def live(opened):
    """Opens the page at a server's address; gives the page and the requests that the server gets."""
    with serving() as (address, requests):

        def opening(fragment="#lang=en&a=yarn"):
            page = opened(fragment, address=address, quiet=False, **DESK)
            page.wait_for_selector("#text")
            return page, requests

        yield opening


def measure(page, text=TEXT, *, shows="#curve canvas"):
    """Ask for the losses of a text, and wait for what then appears."""
    page.fill("#text", text)
    page.click("button:text-is('Measure')")
    page.wait_for_selector(shows)


def said_to(requests, path):
    return [request for asked, request in requests if asked == path]


def test_without_a_server_it_says_how_to_start_one(opened):
    page = opened("#lang=en", **DESK)
    assert "ropewalk serve" in page.text_content("#live-body")
    assert page.locator("#text").count() == 0


def test_it_works_under_a_policy_that_allows_its_own_scripts_alone(opened):
    with serving() as (address, _):
        page = opened("#lang=en&a=rope", address=address, quiet=False, **DESK)
        said, raised, asked = watched(page)
        page.reload()
        page.wait_for_selector("#text")
        measure(page)
        page.locator("#matrix-a canvas").hover()
        assert page.evaluate("Ropewalk.share.picture(document.getElementById('walk')).then(({ width }) => width)") > 800
        assert (said, raised) == ([], [])
        assert {url.removeprefix(address) for url in asked} == {"", "v1/models", "api/losses"}


def test_a_typed_line_is_drawn_by_the_server(live):
    page, requests = live("#lang=en&a=rope")
    page.fill("#line-a", "yarn:factor=4+log_n")
    page.wait_for_selector("#about-a code")
    composed = page.text_content("#about-a code").removeprefix("= ")
    assert composed == "by_parts:factor=4 + yarn_temperature:factor=4 + log_n"
    assert "5 of 64 pairs" not in page.text_content("#angles-a figcaption")
    asked = said_to(requests, "/api/drawing")
    assert asked[-1] == {"line": "yarn:factor=4+log_n", "length": 32768}
    page.fill("#line-a", "rope")
    page.fill("#line-a", "yarn:factor=4+log_n")
    page.wait_for_selector("#about-a code")
    assert said_to(requests, "/api/drawing") == asked  # what was drawn once is kept


def test_a_wrong_line_is_refused_in_pythons_words(live):
    page, _ = live("#lang=en&a=rope")
    page.fill("#line-a", "yarn:faktor=4")
    page.wait_for_selector("#about-a .wrong")
    with pytest.raises(ValueError, match="faktor") as refused:
        rw.parse("yarn:faktor=4")
    assert page.text_content("#about-a .wrong") == str(refused.value)
    assert page.get_attribute("#line-a", "aria-invalid") == "true"
    assert "faktor" not in page.evaluate("location.hash")
    page.fill("#line-a", "yarn:factor=3")
    page.wait_for_function("() => location.hash === '#a=yarn:factor=3&lang=en'")  # once the server has drawn it
    page.fill("#line-a", "refuse me")
    page.wait_for_function("() => document.querySelector('#about-a .wrong')?.textContent.includes('must be shorter')")


def test_the_models_of_the_lines_are_chosen_at_first(live):
    page, _ = live("#lang=en&a=rerope%2Blog_n&b=yarn")
    assert page.input_value("#model-a") == B
    assert page.input_value("#model-b") == A
    assert page.locator("#model-a option").all_text_contents() == [A, B, BASE]
    page, _ = live("#lang=en&a=rope&b=yarn")
    assert page.input_value("#model-a") == BASE


def test_losses_of_a_text_are_coloured_and_drawn(live):
    page, requests = live()
    measure(page)
    asked = said_to(requests, "/api/losses")
    assert asked == [{"text": TEXT, "models": [A, B]}, {"text": TEXT, "models": [BASE]}]
    assert page.locator(".tokens").count() == 2
    assert page.locator(".tokens").first.locator("span").count() == 100
    assert page.locator(".tokens").first.text_content() == TEXT
    assert "mean loss 3.1 nats per token" in page.text_content("#live-body")
    shades = page.locator(".tokens").first.locator("span").evaluate_all("all => all.map(e => e.style.backgroundColor)")
    assert len(set(shades)) == 4  # the first token, and three losses
    page.focus("#curve .u-over")
    page.keyboard.press("End")
    assert "Token 99" in page.text_content("#curve .readout")
    assert "A 3, B 1.5 nats" in page.text_content("#curve .readout")


def test_where_the_base_model_breaks_is_marked(live):
    page, _ = live()
    measure(page)
    words = page.text_content("#curve figcaption")
    assert TRAINED <= int(words.rpartition("breaks at ")[2].partition(",")[0]) <= TRAINED + 8
    page.fill("#text", " ".join(TEXT.split()[:30]))
    page.click("button:text-is('Measure')")
    page.wait_for_function("() => document.querySelector('#curve figcaption').textContent.includes('holds')")


def test_tokens_are_read_with_the_keyboard(live):
    page, _ = live()
    measure(page)
    page.locator(".tokens").last.focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    assert page.text_content("#curve .readout") == 'Token 2 " word2": A 3.2, B 1.7 nats'


def test_attention_of_one_head(live):
    page, requests = live()
    page.fill("#text", "one two three")
    page.select_option("#attention-layer", "2")
    page.select_option("#attention-head", "1")
    page.select_option("#attention-side", "b")
    page.click("button:text-is('Show')")
    page.wait_for_selector("#heat canvas")
    assert said_to(requests, "/api/attention") == [{"text": "one two three", "model": B, "layer": 2, "head": 1}]
    page.focus("#heat canvas")
    page.keyboard.press("ArrowRight")
    assert page.text_content("#heat .readout") == '" three" reads " two": weight 0.17'
    dark = page.evaluate(
        """() => {
          const context = document.querySelector("#heat canvas").getContext("2d");
          return [[0, 2], [1, 2], [2, 0]].map(([x, y]) => context.getImageData(x, y, 1, 1).data[3]);
        }"""
    )
    assert dark[0] > dark[1] > dark[2] == 0


def test_a_chat_with_both(live):
    page, requests = live()
    assert page.locator(f"text={PLAIN}").count() == 0
    page.fill("#message", "hello")
    page.keyboard.press("Enter")
    for side, model in (("a", A), ("b", B)):
        page.wait_for_function(
            "([side, text]) => document.querySelector(`#chat-${side}`).textContent.includes(text)",
            arg=[side, f"{model} heard hello <b>bold</b>"],
        )
    page.wait_for_function("() => document.querySelector('#send').textContent === 'Send'")
    page.fill("#message", "again")
    page.click("#send")
    page.wait_for_function("() => document.querySelector('#chat-b').textContent.includes('heard again')")
    last = said_to(requests, "/v1/chat/completions")[-1]
    assert [message["role"] for message in last["messages"]] == ["user", "assistant", "user"]
    assert last["messages"][-1] == {"role": "user", "content": "again"}
    assert last["stream"] is True
    assert page.locator("#chat-a b").count() == 0
    page.click("button:text-is('Clear')")
    assert page.text_content("#chat-a") == ""


def test_a_model_without_a_chat_template_continues_the_text(opened):
    with serving(chat=False) as (address, requests):
        page = opened("#lang=en&a=yarn", address=address, quiet=False, **DESK)
        assert page.locator(f"text={PLAIN}").is_visible()
        page.fill("#message", "Once")
        page.click("#send")
        page.wait_for_function("() => document.querySelector('#chat-b').textContent.includes('heard Once')")
        asked = said_to(requests, "/v1/completions")
        assert {request["prompt"] for request in asked} == {"Once"}
        assert {request["model"] for request in asked} == {A, B}


def test_a_key_is_asked_for_and_kept_for_the_tab(opened):
    with serving(key="s3cret") as (address, _):
        page = opened("#lang=en&a=yarn", address=address, quiet=False, **DESK)
        page.wait_for_selector("#key")
        page.fill("#key", "wrong")
        page.click("button:text-is('Connect')")
        page.wait_for_function("() => document.querySelector('#key')?.value === ''")  # it is asked for again
        page.fill("#key", "s3cret")
        page.click("button:text-is('Connect')")
        page.wait_for_selector("#text")
        assert page.evaluate("sessionStorage.getItem('ropewalk.key')") == "s3cret"
        assert page.evaluate("localStorage.length") == 0
        assert "s3cret" not in page.url
        measure(page)
        page.reload()
        page.wait_for_selector("#text")


def test_what_the_server_refuses_is_said_where_it_was_asked(live):
    page, _ = live()
    measure(page, "refuse me", shows="#losses-said.wrong")
    assert page.text_content("#losses-said") == ("The server said: text must be shorter <img src=x onerror=alert(1)>")
    page.fill("#message", "refuse me")
    page.click("#send")
    page.wait_for_function("() => document.querySelector('#chat-a').textContent.includes('must be shorter')")
    page.fill("#text", "")
    page.click("button:text-is('Measure')")
    assert page.text_content("#losses-said") == "Paste a text first."
    assert page.locator("#live img").count() == 0


def test_what_was_measured_stays_in_another_language_and_where_something_else_is_refused(live):
    page, requests = live()
    measure(page)
    page.fill("#text", "refuse me")
    page.click("button:text-is('Show')")
    page.wait_for_selector("#attention-said.wrong")
    before = json.dumps(requests)
    page.click("button[data-language=zh]")
    page.wait_for_function("() => document.querySelector('#live h2').textContent === '在真实模型上'")
    assert page.locator(".tokens").count() == 2
    assert page.input_value("#text") == "refuse me"
    assert json.dumps(requests) == before


@pytest.mark.parametrize(
    ("harder", "broken", "place"),
    [
        ((0, 0), (40, 100), 40),  # from the trained length on
        ((20, 30), (40, 100), 40),  # a passage that is hard for both is no break
        ((20, 30), (50, 100), 50),
        ((0, 0), (100, 100), None),
        ((40, 100), (100, 100), None),  # hard to the end, for both
        ((0, 0), (40, 50), None),  # it recovers
    ],
)
def test_a_break_is_told_from_a_hard_passage(scripts, harder, broken, place):
    extra = [4.0 if harder[0] <= n < harder[1] else 0.0 for n in range(100)]
    base = [2.0 + hard + (1.0 if broken[0] <= n < broken[1] else 0.0) for n, hard in enumerate(extra)]
    found = scripts.evaluate("(given) => Ropewalk.losses.breaking(...given)", [base, [[2 + h for h in extra]], 40, 8])
    assert found == place


def test_a_hostile_text_is_shown_as_text(live):
    page, _ = live()
    measure(page, f"{HOSTILE} {HOSTILE}")
    page.click("button:text-is('Show')")
    page.wait_for_selector("#heat canvas")
    page.fill("#message", HOSTILE)
    page.click("#send")
    page.wait_for_function("() => document.querySelector('#chat-b').textContent.includes('bold')")
    assert page.locator("img").count() == 0
    assert page.title() != "broken"


def test_a_server_that_goes_away_is_said(opened):
    with serving() as (address, _):
        page = opened("#lang=en&a=yarn", address=address, quiet=False, **DESK)
        page.wait_for_selector("#text")
    measure(page, TEXT, shows="#losses-said.wrong")
    assert page.text_content("#losses-said") == "The server does not answer."


def test_an_answer_that_is_not_understood_is_said_and_nothing_hangs(live):
    page, _ = live()
    measure(page, "be strange", shows="#losses-said.wrong")
    assert page.text_content("#losses-said") == "The server's answer was not understood."
    page.fill("#message", "be strange")
    page.click("#send")
    page.wait_for_function("() => document.querySelector('#chat-a').textContent.includes('not understood')")
    page.wait_for_function("() => document.querySelector('#send').textContent === 'Send'")
    measure(page)
    page.fill("#message", "hello")
    page.click("#send")
    page.wait_for_function("() => document.querySelector('#chat-a').textContent.includes('heard hello')")


def test_an_answer_is_stopped(live):
    page, _ = live()
    page.fill("#message", "be slow")
    page.click("#send")
    page.wait_for_function("() => document.querySelector('#chat-a').textContent.includes('heard')")
    assert page.text_content("#send") == "Stop"
    page.click("#send")
    page.wait_for_function("() => document.querySelector('#send').textContent === 'Send'")
    assert "bold" not in page.text_content("#chat-a")


def test_sliding_leaves_what_was_measured_alone(live):
    page, _ = live()
    measure(page)
    page.evaluate("() => (document.querySelector('.tokens').dataset.mark = 'same')")
    page.focus("#to")
    page.keyboard.press("ArrowRight")
    page.wait_for_function("() => location.hash.includes('to=65536')")
    assert page.get_attribute(".tokens", "data-mark") == "same"
