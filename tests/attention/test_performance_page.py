"""docs/performance.md shows the order of the backends as the code has it."""

from pathlib import Path

from ropewalk.attention.backends.choose import choices

PAGE = Path(__file__).resolve().parents[2] / "docs" / "performance.md"


def test_the_order_of_the_backends_is_current():
    assert f"```text\n{choices()}\n```" in PAGE.read_text(), "copy what choices() returns into docs/performance.md"
