"""What has to be settled before torch is used, and which tests run by day.

One thread a process: small tensors gain nothing from more, and pytest-xdist already uses every core.
"""

import gc
import signal
from contextlib import suppress

import pytest
import torch

from ropewalk.measure import progress

import nightly
from browser import browser

progress.FIRST_LINE_SECONDS = progress.INTERVAL  # a busy machine takes more than two seconds to load, and says so
torch.set_num_threads(1)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's background job, where Ctrl-C would do nothing
    signal.signal(signal.SIGINT, signal.default_int_handler)
with suppress(ImportError):  # a lent GPU has what it has
    from hypothesis import settings

    settings.register_profile("no deadline", deadline=None)  # tests never assert a time
    settings.load_profile("no deadline")


def pytest_addoption(parser):
    parser.addoption("--tenth-of", metavar="COMMIT", help="of the nightly tests only the tenth that a commit draws")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    nightly.mark_the_rest_of_samples(items)
    if commit := config.getoption("--tenth-of"):
        left = set(nightly.left_out(items, commit))
        config.hook.pytest_deselected(items=list(left))
        items[:] = [item for item in items if item not in left]
        items.sort(key=lambda item: item.get_closest_marker("nightly") is None)  # or long ones would end alone


def pytest_collection_finish():
    """What looks for garbage, as each training does twice, need not look through all that was imported."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter, config):
    """The names of the tenth, from the reports: with pytest-xdist no other process tells."""
    if commit := config.getoption("--tenth-of"):
        told = [each for listed in terminalreporter.stats.values() for each in listed]
        ran = {each.nodeid for each in told if isinstance(each, pytest.TestReport) and "nightly" in each.keywords}
        terminalreporter.section(f"the tenth of the nightly tests that {commit} draws: {len(ran)}")
        for line in nightly.told(ran):
            terminalreporter.line(line)


@pytest.fixture(scope="module")
def chromium():
    """A module's browser. It ends with the module: a thread runs one Playwright, whose event loop keeps asyncio out."""
    with browser() as started:
        yield started
