"""A browser for tests: the Chromium that the machine has, started by Playwright; a test without one is skipped."""

import shutil
from contextlib import contextmanager

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
OPTIONS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")  # a container's user is root


def why_not():
    """Why there is no browser; empty where there is one."""
    try:
        import playwright.sync_api  # noqa: F401
    except ModuleNotFoundError:
        return "playwright is not installed: pip install '.[dev]' -c constraints.txt"
    return "" if executable() else f"no browser on the path, looked for {', '.join(NAMES)}"


def executable():
    """The browser's path; nothing where there is none."""
    return next(filter(None, map(shutil.which, NAMES)), None)


@contextmanager
def browser():
    """A headless browser while the block runs, or a skipped test."""
    if reason := why_not():
        pytest.skip(reason)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=executable(), args=list(OPTIONS))
        try:
            yield started
        finally:
            started.close()


def watched(page):
    """What a page says in its console, the errors it raises and the addresses it asks for: three lists that grow."""
    said, raised, asked = list[str](), list[str](), list[str]()
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: raised.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    return said, raised, asked
