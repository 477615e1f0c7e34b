"""Results in print: columns under each other, the best rows first, the rest counted."""

from ropewalk.measure.report.written_tables import PageTable
from ropewalk.measure.result import aligned


def test_columns_are_aligned():
    table = PageTable(("extension", "loss"), (("a", "2.10"), ("bc", "12.30")))
    assert aligned(table) == ["  extension   loss", "  a           2.10", "  bc         12.30"]


def test_words_at_the_end_are_to_the_left():
    table = PageTable(("x", "loss", "verdict"), (("a", "1", "breaks"), ("b", "22", "worse")), ends_in_words=True)
    assert aligned(table) == ["  x  loss  verdict", "  a     1  breaks", "  b    22  worse"]


def test_many_rows_are_counted():
    table = PageTable(("x",), tuple((str(n),) for n in range(9)))
    assert aligned(table)[-2:] == ["  4", "  ... and 4 more"]
