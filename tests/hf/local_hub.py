"""A hub on this machine: it serves the files of a folder, or does not answer, as the ways of having no network do."""

import socket
from contextlib import closing, contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from json import dumps
from threading import Thread
from time import sleep

from huggingface_hub import constants
from transformers.utils import hub as of_transformers

from ropewalk.hf.checkpoint import fetch

COMMIT = "0" * 40


@contextmanager
def serving(folder, *, delay=0.0, status=None):
    """Its address; the files are those of every repository. With `status` it answers nothing else."""

    class Hub(BaseHTTPRequestHandler):
        def do_GET(self):
            where, resolved, name = self.path.partition(f"/resolve/{COMMIT if COMMIT in self.path else 'main'}/")
            content = b""
            if resolved:
                sleep(delay)
                content = (folder / name).read_bytes() if (folder / name).is_file() else b""
            elif "/tree/" in where:
                content = b"[]"
            elif where.startswith("/api/models/"):
                content = dumps({"id": "owner/name", "sha": COMMIT, "siblings": []}).encode()
            self.send_response(status or (200 if content else 404))
            self.send_header("X-Repo-Commit", COMMIT)
            if not content:
                self.send_header("X-Error-Code", "EntryNotFound")
            self.send_header("ETag", f'"{sha256(content).hexdigest()}"')
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content)

        do_HEAD = do_GET  # noqa: N815

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@contextmanager
def hanging():
    """The address of a server that takes calls and says nothing."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@contextmanager
def refusing():
    """An address at which nobody listens."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port = server.getsockname()[1]
    yield f"http://127.0.0.1:{port}"


@contextmanager
def unavailable():
    """The address of a proxy that cannot reach the hub."""
    with serving(None, status=503) as address:
        yield address


def asked(monkeypatch, address, cache):
    """Have this process ask the hub at an address, with a cache of its own."""
    monkeypatch.setattr(constants, "ENDPOINT", address)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", address + "/{repo_id}/resolve/{revision}/{filename}")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(of_transformers, "_hf_api", None)  # it is made with the address of its time
    monkeypatch.setattr(fetch, "_KNOWN", {})
