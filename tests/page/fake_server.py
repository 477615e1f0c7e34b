"""A server that answers as `ropewalk serve` does, with shapes as recorded and numbers that a test can tell apart."""

import base64
import hashlib
import json
import re
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from ropewalk.page import html
from ropewalk.page.assemble import USUAL
from ropewalk.page.drawing import draw

TRAINED = 40
BASE, A, B = "default@bare", "default@yarn", "default@rerope+log_n"
LEVELS = {BASE: 2.0, A: 3.0, B: 1.5}  # nats per token within the trained length


def models(chat):
    """As GET v1/models."""
    shape = {"trained_len": TRAINED, "target_len": 8 * TRAINED, "chat": chat, "layers": 3, "heads": 2}
    listed = [{"id": name, "extension": name.partition("@")[2]} for name in (A, B, BASE)]
    described = [
        {"id": model["id"], "object": "model", "created": 0, "owned_by": "ropewalk"}
        | {"ropewalk": {"extension": model["extension"], **shape}}
        for model in listed
    ]
    return {"object": "list", "data": described}


def losses(request):
    """As POST api/losses: tokens are words with the space before them; the base model breaks at its trained length."""
    tokens = tokens_of(request["text"])

    def loss(name, place):
        return LEVELS[name] + 0.1 * (place % 3) + (4.0 if name == BASE and place >= TRAINED else 0.0)

    read = {name: [None, *(loss(name, place) for place in range(1, len(tokens)))] for name in request["models"]}
    return {"tokens": tokens, "trained_len": TRAINED, "losses": read}


def tokens_of(text):
    words = text.split(" ")
    return [words[0], *(f" {word}" for word in words[1:])]


def attention(request):
    """As POST api/attention: row i has i+1 numbers, the first of them large."""
    tokens = tokens_of(request["text"])[-512:]
    rows = [[0.5 + 0.5 / (i + 1), *[0.5 / (i + 1)] * i] for i in range(len(tokens))]
    return {"tokens": tokens, "weights": rows}


def answer(request, chat):
    """The parts of a streamed answer: the model's name and what it was asked, word by word."""
    asked = request["messages"][-1]["content"] if chat else request["prompt"]
    return [f"{request['model']} ", "heard ", f"{asked} ", "<b>bold</b>"]


def policy(text):
    """Nothing but the page's own scripts and styles, by their hashes: what a careful server sends with it."""
    allowed = {"script": [], "style": []}
    for kind, content in re.findall(r"<(script|style)>(.*?)</\1>", text, flags=re.DOTALL):
        allowed[kind].append(f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'")
    sources = "; ".join(f"{kind}-src {' '.join(hashes)}" for kind, hashes in allowed.items())
    return f"default-src 'none'; {sources}; img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'"


class Handler(BaseHTTPRequestHandler):
    """One request; `server.key`, `server.chat` and `server.requests` belong to the test."""

    def log_message(self, *arguments):
        pass

    def do_GET(self):
        if self.path == "/":
            page = html(presets=False)
            return self._send(page.encode(), "text/html; charset=utf-8", policy=policy(page))
        if self.path == "/v1/models":
            return self._guarded(lambda: self._json(models(self.server.chat)))
        self._error(404, "not found")

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append((self.path, request))
        routes = {
            "/api/losses": lambda: self._json(losses(request)),
            "/api/attention": lambda: self._json(attention(request)),
            "/api/drawing": lambda: self._json(draw(request["line"], USUAL, request["length"])),
            "/v1/chat/completions": lambda: self._stream(request, True),
            "/v1/completions": lambda: self._stream(request, False),
        }
        if "be strange" in json.dumps(request):
            return self._send(b"data: {not json\n\n", "text/event-stream")
        if "refuse me" in json.dumps(request):
            return self._error(400, "text must be shorter <img src=x onerror=alert(1)>")
        self._guarded(routes[self.path])

    def _guarded(self, answering):
        if self.server.key and self.headers.get("Authorization") != f"Bearer {self.server.key}":
            return self._error(401, "a key is needed")
        return answering()

    def _error(self, status, message):
        self._send(json.dumps({"error": {"message": message}}).encode(), "application/json", status)

    def _json(self, values):
        self._send(json.dumps(values).encode(), "application/json")

    def _send(self, body, kind, status=200, policy=""):
        self.send_response(status)
        if policy:
            self.send_header("Content-Security-Policy", policy)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, request, chat):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for part in answer(request, chat):
            choice = {"index": 0, "delta": {"content": part}} if chat else {"index": 0, "text": part}
            data = f"data: {json.dumps({'choices': [choice]})}\n\n".encode()
            self.wfile.write(data[:9])  # a part may come in pieces
            self.wfile.flush()
            self.wfile.write(data[9:])
            self.wfile.flush()
            if "be slow" in json.dumps(request) and part == "heard ":
                self.server.stopped.wait(10)
        self.wfile.write(b"data: [DONE]\n\n")


@contextmanager
def serving(*, key="", chat=True):
    """The server while the block runs: its address, and the requests that it got."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.key, server.chat, server.requests, server.stopped = key, chat, [], threading.Event()
    server.handle_error = lambda *arguments: None  # a browser may go away in the middle of an answer
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/", server.requests
    finally:
        server.stopped.set()
        server.shutdown()
        server.server_close()
        thread.join()
