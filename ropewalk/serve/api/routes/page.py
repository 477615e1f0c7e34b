"""`/`: the page, under a policy that allows nothing but what is in it."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from typing import NamedTuple

from fastapi import APIRouter, Request, Response

from ropewalk.page import html

router = APIRouter()
BLOCK = re.compile(r"<(script|style)\b[^>]*>(.*?)</\1\s*>", re.DOTALL | re.IGNORECASE)


class PageWithPolicy(NamedTuple):
    """A page and its policy."""

    html: str
    policy: str


@router.get("/")
async def page(request: Request) -> Response:
    """The page that draws methods, and compares them on this server's model."""
    shown = _page()
    headers = {"Content-Security-Policy": shown.policy, "Cache-Control": "no-cache"}
    return Response(shown.html, media_type="text/html", headers=headers)


@cache
def _page() -> PageWithPolicy:
    text = html()
    return PageWithPolicy(text, policy_of(text))


def policy_of(text: str) -> str:
    """What a page may do: run its scripts and styles, draw, and call the server that it came from."""
    allowed: dict[str, list[str]] = {"script": [], "style": []}
    for kind, content in BLOCK.findall(text):
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        allowed[kind.lower()].append(f"'sha256-{digest}'")
    scripts, styles = (" ".join(allowed[kind]) or "'none'" for kind in ("script", "style"))
    return (
        f"default-src 'none'; script-src {scripts}; style-src {styles}; "
        "img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
