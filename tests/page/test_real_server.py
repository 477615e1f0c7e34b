"""The page at `/` of a real server: what it shows is what the model computes."""

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import ropewalk as rw
from ropewalk.models import DEFAULT

from browser import watched
from real_server import Server

pytestmark = pytest.mark.nightly

TEXT = "import os\nimport sys\n\n\ndef main(arguments):\n    print(arguments)\n" * 60
DESK = {"viewport": {"width": 1280, "height": 900}}


@pytest.fixture(scope="module")
def address():
    server = Server("--port", "0", "--extensions", "streaming").ready()
    yield f"{server.url}/"
    assert server.end()[0] == 0


@pytest.fixture
def page(opened, address):
    page = opened("#lang=en&a=rope&b=rerope%2Blog_n", address=address, quiet=False, **DESK)
    log = watched(page)
    page.set_default_timeout(60_000)
    page.wait_for_selector("#text")
    yield page
    said, raised, _ = log
    assert (said, raised) == ([], [])


def test_losses_are_those_of_the_model(page):
    ids = AutoTokenizer.from_pretrained(DEFAULT)(TEXT, return_tensors="pt")["input_ids"]
    host = AutoModelForCausalLM.from_pretrained(DEFAULT, dtype=torch.float32).eval()
    expected = {"default@bare": float(rw.score(host, ids).mean())}
    with rw.extended(host, "rerope+log_n"):
        expected["default@rerope+log_n"] = float(rw.score(host, ids).mean())
    page.fill("#text", TEXT)
    page.click("button:text-is('Measure')")
    page.wait_for_selector("#curve canvas")
    shown = page.text_content("#live-body")
    for name, loss in expected.items():
        assert f"{name}: mean loss {loss:.2f}".rstrip("0") in shown
    assert page.locator(".tokens").first.locator("span").count() == ids.shape[1]


def test_a_typed_line_is_drawn_for_the_servers_model(page):
    assert "trained on 512 tokens" in page.text_content("#model-summary")
    page.fill("#line-a", "rerope:window=100")
    page.wait_for_function(
        "() => document.querySelector('#about-a code, #about-a .wrong') || document.title.startsWith('rerope:')"
    )
    page.wait_for_function("() => document.querySelector('#about-a > span').textContent.startsWith('ReRoPE')")
    page.focus("#distances .u-over")
    page.keyboard.press("End")
    assert "A 100," in page.text_content("#distances .readout")


def test_attention_of_one_head_is_drawn(page):
    page.fill("#text", TEXT[:200])
    page.select_option("#attention-layer", "5")
    page.click("button:text-is('Show')")
    page.wait_for_selector("#heat canvas")
    page.focus("#heat canvas")
    page.keyboard.press("ArrowRight")
    assert "weight" in page.text_content("#heat .readout")


def test_both_sides_continue_a_text(page):
    page.fill("#message", "import os\nimport ")
    page.click("#send")
    for side in ("a", "b"):
        page.wait_for_function(f"() => document.querySelector('#chat-{side}').textContent.length > 30")
    page.wait_for_function("() => document.querySelector('#send').textContent === 'Send'")
