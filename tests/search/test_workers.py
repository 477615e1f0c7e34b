"""Several processes of one search: what ends it for one ends it for all."""

import time
from functools import partial
from pathlib import Path

import pytest

from ropewalk.search.workers import helped

PATIENCE = 120  # seconds to wait for a helper
LONG = 20  # seconds of a search that nobody ends


class Endless:
    """A search that runs until it is told to stop, as far as a helper needs one."""

    leads = True

    def __init__(self, place: Path) -> None:
        self.place = place
        self.stopped = lambda: False

    def search(self) -> bool:
        (self.place / "began").touch()
        end = time.monotonic() + LONG
        while time.monotonic() < end:
            if self.stopped():
                return True
            time.sleep(0.02)
        return False

    def judge_share(self, worker: int) -> None:
        (self.place / "went on").touch()


def wait_for(path: Path) -> None:
    end = time.monotonic() + PATIENCE
    while not path.exists() and time.monotonic() < end:
        time.sleep(0.02)


def failing(place: Path) -> None:
    with helped(2, partial(Endless, place)):
        wait_for(place / "began")
        raise KeyError


@pytest.mark.nightly
def test_an_interrupt_of_the_main_process_ends_the_helpers(tmp_path):
    with helped(2, partial(Endless, tmp_path)) as stop:
        wait_for(tmp_path / "began")
        stop()
    assert (tmp_path / "began").exists()
    assert not (tmp_path / "went on").exists()


@pytest.mark.nightly
def test_an_error_of_the_main_process_ends_the_helpers(tmp_path):
    with pytest.raises(KeyError):
        failing(tmp_path)
    assert (tmp_path / "began").exists()
    assert not (tmp_path / "went on").exists()
