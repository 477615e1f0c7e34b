"""The page in a file, and opened in a browser; and the numbers that are in it."""

import json

import pytest

from ropewalk.page import html

from browser import watched

BEGINS, ENDS = "<script>const Ropewalk = {given: ", "};</script>"


def given(text):
    """What Python wrote into a page for its scripts."""
    return json.loads(text.partition(BEGINS)[2].partition(ENDS)[0])


@pytest.fixture(scope="session")
def file(tmp_path_factory):
    """The page as people get it: one file."""
    place = tmp_path_factory.mktemp("page") / "page.html"
    place.write_text(html(), "utf-8")
    return place


@pytest.fixture(scope="module")
def scripts(chromium, file):
    """The page, opened once, for tests that only call its functions."""
    context = chromium.new_context()
    page = context.new_page()
    page.goto(file.as_uri())
    yield page
    context.close()


@pytest.fixture
def opened(chromium, file):
    """Opens the page, fresh each time; at the end its console must be empty and nothing may have been asked for."""
    contexts, logs = [], []

    def opening(fragment="", *, address=None, quiet=True, **options):
        context = chromium.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(15_000)
        log = watched(page)
        if quiet:
            logs.append(log)
        page.goto((address or file.as_uri()) + fragment)
        page.wait_for_selector("body[data-ready]")
        return page

    yield opening
    for context in contexts:
        context.close()
    for said, raised, asked in logs:
        assert (said, raised) == ([], [])
        assert [url for url in asked if not url.startswith("file:")] == []
