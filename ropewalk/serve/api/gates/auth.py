"""The API key, compared in constant time; without one, only requests that name this machine."""

from __future__ import annotations

import base64
import binascii
import hmac

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from ropewalk.serve.api.responses.errors import AUTHENTICATION, PERMISSION, Refusal
from ropewalk.serve.api.service import Service

OPEN = ("/health",)


class Authorized:
    """Lets through what has the key; browsers may send it as a password. `/health` is open.

    Where there is no key, a page of another site could call the server by a name of its own that leads to this machine.
    So the name must be one of this machine.
    """

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app, self._settings = app, service.settings
        self._key = (service.settings.api_key or "").encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or refuse it."""
        refusal = None if scope["path"] in OPEN else self._refused(Headers(scope=scope), scope["path"])
        await (refusal.response() if refusal else self._app)(scope, receive, send)

    def _refused(self, headers: Headers, path: str) -> Refusal | None:
        host = _name(headers.get("host", ""))
        if self._settings.hosts and host not in self._settings.hosts:
            sentence = f"this server is called {' or '.join(dict.fromkeys(self._settings.hosts))}, not {host[:100]!r}"
            remedy = "start it with --api-key to call it by any name"
            return Refusal(403, f"{sentence}; {remedy}", kind=PERMISSION, code="host")
        if not self._key or _has_key(headers.get("authorization", ""), self._key):
            return None
        scheme = 'Basic realm="Ropewalk"' if path == "/" else "Bearer"
        sentence = "the API key is missing or wrong; send the header Authorization: Bearer KEY"
        headers_back = {"WWW-Authenticate": scheme}
        return Refusal(401, sentence, kind=AUTHENTICATION, code="invalid_api_key", headers=headers_back)


def _name(host: str) -> str:
    """The host without its port."""
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdecimal() else host).lower()


def _has_key(authorization: str, key: bytes) -> bool:
    scheme, _, sent = authorization.partition(" ")
    secret = _password(sent) if scheme.lower() == "basic" else sent.strip().encode("latin-1")  # as it was sent
    return scheme.lower() in ("bearer", "basic") and hmac.compare_digest(secret, key)


def _password(sent: str) -> bytes:
    try:
        return base64.b64decode(sent, validate=True).partition(b":")[2]
    except (binascii.Error, ValueError):
        return b""
