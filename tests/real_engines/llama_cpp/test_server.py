"""The printed commands start llama-server as they stand, and `check --running` says what it computes."""

import pytest

import ropewalk as rw
from ropewalk import DoesNotFit
from ropewalk.engines.check.running import check_running

from nightly import first_of_each
from real_engines import models
from real_engines.process import serving

TOKENS = 700  # 512 within the trained length
NEAR = 0.02  # nats, in the mean: a cache in float16


def exported(plain, folder, line):
    return rw.export(plain, folder / f"{line}.gguf", target="llama.cpp", extension=line, target_len=models.LONGEST)


def without_the_file(said):
    """The command with options for the model's own file, which is printed where it says the same."""
    (note,) = [note for note in said.notes if note.startswith("the same without this file: ")]
    return note.partition(": ")[2]


def require_in_force(command, said, folder):
    with serving("llama.cpp", command, folder) as url:
        checked = check_running(url, str(said.directory), target_len=TOKENS)
    assert checked.verdict == "in force", str(checked)
    assert max(part.to_schedule for part in checked.parts) < NEAR
    assert [part.name for part in checked.parts] == ["within", "beyond"]


@pytest.mark.parametrize("line", first_of_each(["yarn", "by_parts", "longrope:factor=8"]))
def test_a_schedule_is_in_force(plain, tmp_path, line):
    """By a name, in divisors, and with a temperature beside them."""
    said = exported(plain, tmp_path, line)
    require_in_force(said.command, said, tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("line", ["yarn", "pi"])
def test_the_options_put_it_in_force(plain, tmp_path, line):
    said = exported(plain, tmp_path, line)
    require_in_force(without_the_file(said), said, tmp_path)


def test_a_schedule_is_not_applied(plain, tmp_path):
    """A server of the model's own file. It holds requests to the length of the file, whatever -c says."""
    said = exported(plain, tmp_path, "yarn")
    with serving("llama.cpp", f"llama-server -m {plain} -c {models.LONGEST}", tmp_path) as url:
        with pytest.raises(DoesNotFit, match=r"refuses a prompt of 699 tokens: .*; --to takes a shorter one"):
            check_running(url, str(said.directory), target_len=TOKENS)
        checked = check_running(url, str(said.directory), target_len=models.TRAINED)
    assert checked.verdict == "not applied", str(checked)
