"""Names fit, stay apart, and have no character that a file cannot hold."""

from hypothesis import given, strategies as st

from ropewalk.measure.report.drawing.names import columns, shortened, visible


@given(st.lists(st.text(max_size=60), max_size=12, unique=True), st.integers(12, 40))
def test_no_name_is_longer_than_it_may_be(names, most):
    assert all(columns(name) <= most for name in shortened(names, most))


@given(st.lists(st.text(max_size=60), max_size=12, unique_by=visible))
def test_different_names_look_different(names):
    assert len(set(shortened(names, 16))) == len(names)


def test_a_long_name_keeps_its_beginning_and_its_end():
    assert shortened(["dynamic_yarn:factor=16+log_n"], 15) == ["dynamic…6+log_n"]
    assert shortened(["short"], 15) == ["short"]
    alike = ["a_name_of_1_and_its_end_is_this", "a_name_of_2_and_its_end_is_this"]
    assert [name[-2:] for name in shortened(alike, 12)] == ["#1", "#2"]


def test_chinese_takes_two_columns():
    assert columns("方法ab") == 6
    assert columns(shortened(["方法" * 20], 11)[0]) <= 11


def test_what_cannot_be_shown_is_written_out():
    assert visible("a\x00b\u202e\udcff") == "a\\x00b\\u202e\\udcff"
