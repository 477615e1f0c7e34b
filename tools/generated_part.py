"""The part of a page that follows from records: what stands between two comments is written anew, the rest is kept."""

from __future__ import annotations

END = "<!-- end -->"


def has_part(text: str, name: str) -> bool:
    """Whether a page has the comments of this part."""
    return _begin(name) in text


def with_part(text: str, name: str, part: str) -> str:
    """A page with its part of this name; a page without the comment is an error of the page."""
    begin = _begin(name)
    before, rest = text.split(begin)
    return f"{before}{begin}\n{part}\n{END}{rest.partition(END)[2]}"


def _begin(name: str) -> str:
    return f"<!-- generated: {name} -->"
