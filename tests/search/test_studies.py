"""Studies that somebody changed, and disks without room for them."""

import socket
import sqlite3

import optuna
import pytest
from full_disk import room

from ropewalk.errors import DoesNotFit, RopewalkError, Unreadable
from ropewalk.search.search_loop import search, winner
from ropewalk.search.studies import open_study
from ropewalk.search.trials import finished_trials

from search.synthetic import Distance, everything, goal

CHANGES = [
    "update study_directions set direction = 'MAXIMIZE'",
    "delete from study_directions",
    "update studies set study_id = -1",
    "update study_user_attributes set value_json = '{'",
    "update study_user_attributes set value_json = '[]'",
    "update trial_user_attributes set value_json = 'garbage' where key = 'extension'",
    "update trial_user_attributes set value_json = '[]' where key = 'extension'",
    'update trial_user_attributes set value_json = \'{"frequencies": {"name": "no"}}\' where key = \'extension\'',
    """update trial_user_attributes set value_json = '{"loss": 1}' where key = 'figures'""",
    """update trial_user_attributes set value_json = replace(value_json, '1.0', '"x"') where key = 'figures'""",
    "update trials set number = 'garbage'",
    "update trials set state = 'garbage'",
    "update trials set datetime_start = 'garbage'",
    "update trial_params set param_value = 'garbage'",
    "update trial_params set param_value = 1000000000000",
    "delete from trial_params where param_name = 'space'",
    "update trial_params set distribution_json = '{'",
    "update trial_values set value = null",
    "update trial_values set value_type = 'garbage'",
    "update trial_intermediate_values set intermediate_value_type = 'garbage'",
    "drop table trials",
]


def begun(path):
    return open_study(f"sqlite:///{path}", "fit", goal(), {"model": "1"}, everything)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    path = tmp_path_factory.mktemp("study") / "study.sqlite"
    search(begun(path), goal(), Distance(), trials=3)
    return path


@pytest.mark.sampled(cases=7)
@pytest.mark.parametrize("words", CHANGES)
def test_a_study_that_was_changed_is_refused_when_it_is_opened(finished, tmp_path, words):
    path = tmp_path / "study.sqlite"
    path.write_bytes(finished.read_bytes())
    assert len(finished_trials(begun(path))) == 3
    file = sqlite3.connect(path)
    with file:
        file.execute(words)
    file.close()
    with pytest.raises(RopewalkError):
        winner(begun(path), goal())


@pytest.mark.parametrize("content", [b"garbage" * 1000, b"SQLite format 3\0" + b"x" * 5000])
def test_files_that_are_no_study(tmp_path, content):
    (tmp_path / "study.sqlite").write_bytes(content)
    with pytest.raises(Unreadable, match="storage must be a study that Optuna opens"):
        begun(tmp_path / "study.sqlite")


def test_an_owner_that_is_none_is_left_alone(finished, tmp_path):
    path = tmp_path / "study.sqlite"
    path.write_bytes(finished.read_bytes())
    study = begun(path)
    study.ask().set_user_attr("owner", f"{socket.gethostname()}:garbage")
    assert len(begun(path).get_trials(states=(optuna.trial.TrialState.RUNNING,))) == 1


def test_a_full_disk_ends_a_search_in_one_line_and_what_was_found_is_kept(finished, tmp_path):
    path = tmp_path / "study.sqlite"
    path.write_bytes(finished.read_bytes())
    before = [each.extension for each in finished_trials(begun(path))]
    with (
        room(path.stat().st_size),
        pytest.raises(DoesNotFit, match=r"disk must be large enough.*start again; the search resumes"),
    ):
        search(begun(path), goal(), Distance(), trials=60)
    assert [each.extension for each in finished_trials(begun(path))][:3] == before
    search(begun(path), goal(), Distance(), trials=5)
    assert len(finished_trials(begun(path))) >= 5
    with room(20_000), pytest.raises(DoesNotFit, match="disk must be large enough"):
        begun(tmp_path / "another.sqlite")
