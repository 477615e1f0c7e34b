"""What the end of a run of pytest says of a mutant."""

import re
import sys


def killer(status: int, said: str, hung: str) -> str:
    """The test that failed, by pytest's exit status, its words and the test that did not end; empty without any.

    A file that cannot be imported any more is a failure too, though pytest answers 4 if one of its tests was asked for.
    It also answers 4 where a test is gone, as a case that is named by what a mutant changes: that shows nothing.
    """
    if status in (0, 5):
        return ""
    test = r"(?:FAILED|ERROR) (tests/[^\s\[]+(?:\[.*?\](?= - |$))?)(?: - .*)?"
    words = rf"^(?:{test}|ImportError while loading conftest '.*/(tests/.+)'\.)$"
    if failed := re.search(words, said, flags=re.MULTILINE):
        return failed[1] or failed[2]
    if status == 4:
        print("No test could begin:", said[-300:], file=sys.stderr)
        return ""
    return hung or said[-300:]
