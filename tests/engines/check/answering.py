"""Engines that run in a thread and answer as real ones do, from a model of ours."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch


@torch.no_grad()
def rows(model, ids):
    """Log-probabilities of the next token: tokens x vocabulary."""
    return model(torch.tensor([ids])).logits[0].double().log_softmax(-1)


def echo(model):
    """vLLM's and SGLang's /v1/completions."""

    def answer(path, body):
        if path != "/v1/completions" or not body["echo"]:
            return 404, {"detail": "Not Found"}
        ids = body["prompt"]
        said = rows(model, ids)[:-1].gather(-1, torch.tensor(ids[1:])[:, None])[:, 0].tolist()
        return 200, {"choices": [{"text": "", "logprobs": {"token_logprobs": [None, *said, -0.5]}}]}

    return answer


def prefixes(model):
    """llama-server: its /v1/completions has no prompt in it; /completion has the likeliest tokens."""

    def answer(path, body):
        if path == "/v1/completions":
            return 200, {"choices": [{"text": "x", "logprobs": {"content": [{"id": 5, "logprob": -0.5}]}}]}
        values, ids = rows(model, body["prompt"])[-1].topk(body["n_probs"])
        top = [{"id": i, "logprob": value} for i, value in zip(ids.tolist(), values.tolist(), strict=True)]
        return 200, {"completion_probabilities": [{"id": top[0]["id"], "top_logprobs": top}]}

    return answer


def refusing(status, words):
    return lambda path, body: (status, {"error": {"message": words}})


@contextmanager
def running(answer, names=("model",)):
    """The address of an engine that answers so."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            listed = {"data": [{"id": name} for name in names]}
            self.say(*((200, listed) if self.path == "/v1/models" else (404, {})))

        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.say(*answer(self.path, json.loads(body)))

        def say(self, status, value):
            text = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
