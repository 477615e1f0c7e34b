"""A hub on this machine: it serves the files of a folder, or does not answer, as the ways of having no network do."""

import socket
from base64 import b64decode
from contextlib import closing, contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from json import dumps, loads
from threading import Thread
from time import sleep

from huggingface_hub import constants
from transformers.utils import hub as of_transformers
from yaml import YAMLError, safe_load

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


class WritableHub:
    """A hub that takes uploads, with what was sent to it: only what `huggingface_hub` calls for that, and downloads."""

    def __init__(self, token="hf_right"):
        self.token, self.files, self.private, self.blobs, self.commits = token, {}, {}, {}, []
        self.refused = {}  # the beginning of a path and a status

    def sha(self, repository):
        return f"{1 + sum(name == repository for name, _ in self.commits):040x}"

    def post(self, path, body):
        """The status and the JSON of an answer."""
        repository = "/".join(path.removeprefix("/api/models/").split("/")[:2])
        if path == "/api/repos/create":
            asked = loads(body)
            name = f"{asked['organization']}/{asked['name']}"
            status = 409 if name in self.files else 200
            if status == 200:
                self.files[name], self.private[name] = {}, asked.get("visibility") == "private"
            return status, {"url": f"/{name}", "error": "You already created this model repo"}
        if path == "/api/validate-yaml":
            try:
                head = safe_load(loads(body)["content"].split("---")[1])
            except YAMLError as wrong:
                return 400, {"errors": [{"message": str(wrong)}]}
            return 200, {"warnings": [] if head["tags"] else [{"message": "no tags"}]}
        if "/preupload/" in path:
            names = [file["path"] for file in loads(body)["files"]]
            modes = {name: "lfs" if name.endswith(".safetensors") else "regular" for name in names}
            return 200, {
                "files": [{"path": name, "uploadMode": mode, "shouldIgnore": False} for name, mode in modes.items()]
            }
        if path.endswith("/info/lfs/objects/batch"):
            objects = loads(body)["objects"]
            return 200, {
                "objects": [{**one, "actions": {"upload": {"href": f"{self.url}/lfs/{one['oid']}"}}} for one in objects]
            }
        assert path.endswith("/commit/main"), path
        return self.commit(repository, [loads(line) for line in body.splitlines()])

    def commit(self, repository, lines):
        head = lines[0]["value"]
        if head.get("parentCommit", self.sha(repository)) != self.sha(repository):
            return 412, {"error": "A commit has happened since."}
        for line in lines[1:]:
            kind, value = line["key"], line["value"]
            if kind == "deletedFile":
                del self.files[repository][value["path"]]
            else:
                content = self.blobs[value["oid"]] if kind == "lfsFile" else b64decode(value["content"])
                self.files[repository][value["path"]] = content
        self.commits.append((repository, head["summary"]))
        return 200, {"commitUrl": f"{self.url}/{repository}/commit/1", "commitOid": self.sha(repository)}

    def get(self, path):
        """The status, an error's code, and the content of an answer."""
        path = path.partition("?")[0]
        where, resolved, rest = path.removeprefix("/api/models").strip("/").partition("/resolve/")
        repository = "/".join(where.split("/")[:2])
        if path == "/":
            return 200, "", b"hub"
        if repository not in self.files:
            return 404, "RepoNotFound", b""
        files = self.files[repository]
        if resolved:
            name = rest.partition("/")[2]
            return (200, "", files[name]) if name in files else (404, "EntryNotFound", b"")
        if "/tree/" in where:
            entries = [{"type": "file", "path": name, "size": len(files[name]), "oid": "0" * 40} for name in files]
            return 200, "", dumps(entries).encode()
        card = files.get("README.md", b"").decode().split("---")
        info = {"id": repository, "sha": self.sha(repository), "private": self.private[repository]}
        info |= {"cardData": safe_load(card[1])} if len(card) > 2 else {}
        return 200, "", dumps({**info, "siblings": [{"rfilename": name} for name in files]}).encode()


@contextmanager
def taking_uploads():
    """A hub that takes uploads of whoever has its token."""
    hub = WritableHub()

    class Answers(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            refused = next((status for start, status in hub.refused.items() if self.path.startswith(start)), None)
            if self.command == "PUT":
                hub.blobs[self.path.rpartition("/")[2]] = body
                self.answer(200, b"")
            elif refused or self.headers.get("Authorization") != f"Bearer {hub.token}":
                self.answer(refused or 401, dumps({"error": "Not for you."}).encode())
            else:
                status, content = hub.post(self.path, body)
                self.answer(status, dumps(content).encode())

        do_PUT = do_POST  # noqa: N815

        def do_GET(self):
            status, code, content = hub.get(self.path)
            self.answer(status, content, code)

        do_HEAD = do_GET  # noqa: N815

        def answer(self, status, content, code=""):
            self.send_response(status)
            repository = "/".join(self.path.split("/")[1:3])
            self.send_header("X-Repo-Commit", hub.sha(repository))
            if code:
                self.send_header("X-Error-Code", code)
            self.send_header("ETag", f'"{sha256(content).hexdigest()}"')
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        hub.url = f"http://127.0.0.1:{server.server_port}"
        yield hub
        server.shutdown()
