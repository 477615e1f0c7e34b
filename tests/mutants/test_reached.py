"""What a sample knows of the tests, also when a process was killed while it wrote."""

from mutants.reached import Reached

FUNCTIONS = {"ropewalk/one/one.py": ["twice", "Pair.turned"]}


def written(known, *rows):
    for row in rows:
        known.write({"process": 1, **row})


def test_what_passed_is_known_and_what_a_process_did_not_end_is_named(tmp_path):
    known, other = Reached(tmp_path / "log"), Reached(tmp_path / "log")
    more = {**FUNCTIONS, "ropewalk/two.py": ["thrice"]}
    written(known, {"test": "wide", "seconds": 1, "passed": True, "functions": more})
    written(known, {"test": "narrow", "seconds": 2, "passed": True, "functions": FUNCTIONS})
    written(known, {"test": "red", "seconds": 0, "passed": False, "functions": FUNCTIONS})
    with known.log.open("a") as log:
        log.write('{"test": "cut o\n')
    written(known, {"test": "hangs"}, {"test": "of another", "process": 2})
    assert known.learn(1) == "hangs"
    assert other.learn(3) == ""
    assert known.of("ropewalk/one/one.py", "twice") == ["narrow", "wide"]
    assert known.of("ropewalk/one/one.py", "untested") == known.of("ropewalk/one/other.py", "") == ["narrow", "wide"]
    assert known.of("ropewalk/two.py", "") == ["wide"]
    assert known.of("ropewalk/three/three.py", "") == []


def test_what_hangs_without_a_mutant_is_left_out_another_time_too(tmp_path):
    first, again = Reached(tmp_path / "log"), Reached(tmp_path / "log")
    first.leave_out("hangs")
    assert again.learn() == ""
    assert first.left == again.left == {"hangs"}
