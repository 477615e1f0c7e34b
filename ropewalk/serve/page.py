"""The page, under a policy that allows nothing but what is in it, and what it draws of a line and of a pasted text."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
from functools import cache
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request, Response

from ropewalk.errors import InvalidValue
from ropewalk.extension.notation import BARE
from ropewalk.serve.requests import accept, names_a_file, unless_gone
from ropewalk.serve.routes import body_of, reply, text_of
from ropewalk.serve.service import models_of

if TYPE_CHECKING:
    from ropewalk.methods.facts import Facts  # importing it takes a second

router = APIRouter()
LONGEST_DRAWN = 2**40  # tokens of a target length
BLOCK = re.compile(r"<(script|style)\b[^>]*>(.*?)</\1\s*>", re.DOTALL | re.IGNORECASE)
MOST_LOSSES, MOST_ATTENTION, MOST_MODELS = 32_768, 512, 8  # tokens, tokens, models


@router.get("/")
async def page(request: Request) -> Response:
    """The page that draws methods, and compares them on this server's model: at first what is served."""
    models = models_of(request)
    started = models.find(None)
    lines = tuple(model.extension for model in models.all() if not names_a_file(model.extension))
    name = started.id.partition("@")[0]
    text, policy = await asyncio.to_thread(_page, started.served.facts, name, lines, models.target_len)
    headers = {"Content-Security-Policy": policy, "Cache-Control": "no-cache"}
    return Response(text, media_type="text/html", headers=headers)


@router.post("/api/drawing")
async def drawing(request: Request) -> Response:
    """What the page draws of a line at a length, or the sentence that refuses the line."""
    from ropewalk.page.drawing import draw  # which is loaded with the engine, and not before

    served = models_of(request)
    fields = accept(await body_of(request), ["line", "length"])
    line, length = text_of(fields, "line"), fields.get("length")
    if names_a_file(line):
        raise InvalidValue("line", "a line, since the server reads no files", line)
    if type(length) is not int or not 1 <= length <= LONGEST_DRAWN:
        raise InvalidValue("length", f"a whole number from 1 to {LONGEST_DRAWN:,}", length)
    return reply(await asyncio.to_thread(draw, line, served.find(None).served.facts, length))


@cache
def _page(facts: Facts, name: str, lines: tuple[str, ...], target_len: int | None) -> tuple[str, str]:
    from ropewalk.page.assemble import FIRST, html

    unchanged = FIRST[0]
    shown = tuple(dict.fromkeys([unchanged, *(unchanged if line == BARE else line for line in lines)]))
    text = html(facts, lines=shown, target_len=target_len, presets=False, model=name)
    return text, policy_of(text)


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


@router.post("/api/losses")
async def losses(request: Request) -> Response:
    """The loss of every token of a text under several models; the first has none."""
    served = models_of(request)
    fields = accept(await body_of(request), ["text", "models"])
    names = fields.get("models")
    if not isinstance(names, list) or not 1 <= len(names) <= MOST_MODELS or set(map(type, names)) != {str}:
        raise InvalidValue("models", f"a list of 1 to {MOST_MODELS} names of models", names)
    models = {name: served.find(name) for name in names}
    ids = await _read_text(request, fields)
    wanted = [served.engine.losses(model.extension, ids) for model in models.values()]
    results = await unless_gone(asyncio.gather(*wanted), request.receive)
    trained = next(iter(models.values())).served.facts.trained_len
    tokens = await served.tokenizer.run(8 * len(ids), served.tokenizer.strings, ids)
    return reply({"tokens": tokens, "trained_len": trained, "losses": dict(zip(models, results, strict=True))})


@router.post("/api/attention")
async def attention(request: Request) -> Response:
    """What one head attends to, a row for every token; of a longer text the last tokens alone are read."""
    served = models_of(request)
    fields = accept(await body_of(request), ["text", "model", "layer", "head"])
    model = served.find(text_of(fields, "model") if "model" in fields else None)
    layer = _number_of(fields, "layer", model.served.facts.layers)
    head = _number_of(fields, "head", model.served.facts.heads)
    ids = (await _read_text(request, fields))[-MOST_ATTENTION:]
    weights = await unless_gone(served.engine.attention(model.extension, ids, layer, head), request.receive)
    return reply({"tokens": served.tokenizer.strings(ids), "weights": weights})


async def _read_text(request: Request, fields: dict[str, Any]) -> tuple[int, ...]:
    encoding = models_of(request).tokenizer.encode(text_of(fields, "text"), most=MOST_LOSSES, field="text")
    ids = await unless_gone(encoding, request.receive)
    if not 2 <= len(ids) <= MOST_LOSSES:
        raise InvalidValue("text", f"of 2 to {MOST_LOSSES:,} tokens", f"{len(ids):,} tokens")
    return ids


def _number_of(fields: dict[str, Any], field: str, count: int) -> int:
    value = fields.get(field, 0)
    if type(value) is not int or not 0 <= value < count:
        raise InvalidValue(field, f"a whole number from 0 to {count - 1}", value)
    return value
