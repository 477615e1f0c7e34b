"""What a sample remembers of the tests, also when a process was killed while it wrote."""

import json

from mutants.reached import Reached

FUNCTIONS = {"ropewalk/one.py": [3, 9]}


def line(test, **more):
    return json.dumps({"test": test, **more}) + "\n"


def test_what_passed_is_known_and_what_did_not_end_is_named(tmp_path):
    known = Reached(tmp_path / "log")
    ended = [line(test, seconds=s, passed=True, functions=FUNCTIONS) for test, s in (("slow", 2), ("quick", 1))]
    failed = line("red", seconds=0, passed=False, functions=FUNCTIONS)
    known.log.write_text("".join([*ended, failed, '{"test": "cut o\n', line("hangs")]))
    assert known.learn() == "hangs"
    for function, tests in ((3, ["quick", "slow"]), (0, ["quick", "slow"]), (4, [])):
        assert known.by_cost("ropewalk/one.py", function) == tests
    assert known.by_cost("ropewalk/other.py", 0) == []


def test_what_fails_without_a_mutant_is_left_out_another_time_too(tmp_path):
    first, again = Reached(tmp_path / "log"), Reached(tmp_path / "log")
    first.leave_out("red")
    assert again.learn() == ""
    assert first.failing == again.failing == {"red"}
