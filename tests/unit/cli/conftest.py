"""A stand-in for a running server, and ways to run commands."""

import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest


def event(text, chat):
    """A piece of a stream."""
    choice = {"index": 0, "delta": {"content": text}} if chat else {"index": 0, "text": text}
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


class StandIn:
    """Answers as told; keeps what it was asked."""

    def __init__(self):
        self.pieces = ["Hel", "lo"]
        self.ending = b"data: [DONE]\n\n"
        self.refusal = None
        """A status and a body that every POST gets."""
        self.ready_after = 0
        self.models = [{"id": "first", "object": "model", "context_length": 64}, {"id": "org/second"}]
        self.asked = []
        self.hold = None
        """An event to wait for between the first piece and the second."""
        self.sent_first = threading.Event()

    def bodies(self):
        """The bodies that were posted."""
        return [body for method, _, body, _ in self.asked if method == "POST"]


class _Handler(BaseHTTPRequestHandler):
    def note(self, body=None):
        self.server.stand_in.asked.append((self.command, self.path, body, self.headers.get("authorization")))

    def answer(self, status, body):
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def do_GET(self):
        it = self.server.stand_in
        self.note()
        if self.path == "/readyz":
            it.ready_after -= 1
            self.answer(503 if it.ready_after >= 0 else 200, {"error": "the engine is starting"})
        elif self.path == "/v1/models":
            self.answer(200, {"object": "list", "data": it.models})
        elif self.path == "/v1/models/org/second":
            self.answer(200, it.models[1])
        else:
            self.answer(404, {"error": {"message": "The model does not exist:\ntry another", "code": "x"}})

    def do_POST(self):
        it = self.server.stand_in
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.note(body)
        if it.refusal:
            self.answer(*it.refusal)
        elif self.path == "/v1/render":
            self.answer(200, {"prompt": "<user>", "prompt_token_ids": [1], "stop_token_ids": [2]})
        else:
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            self.stream(it)

    def stream(self, it):
        for n, piece in enumerate(it.pieces):
            if n == 1 and it.hold is not None:
                it.hold.wait(30)
            self.wfile.write(event(piece, self.path.endswith("chat/completions")))
            self.wfile.flush()
            it.sent_first.set()
        self.wfile.write(it.ending)

    def log_message(self, *_):
        pass


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    """A server keeps its store where it is started, and two of them cannot share one."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def stand_in(monkeypatch):
    """A running stand-in; commands find it through the environment."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    server.block_on_close = False
    server.handle_error = lambda *_: None  # a client that hangs up is what some tests are about
    server.stand_in = StandIn()
    server.stand_in.origin = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    monkeypatch.setenv("ONWARD_URL", f"{server.stand_in.origin}/v1")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("ONWARD_API_KEY", raising=False)
    yield server.stand_in
    server.shutdown()
    server.server_close()
    thread.join()


def start(*arguments, **options):
    """A command as a process of its own."""
    command = [sys.executable, "-m", "onward.cli.main", *arguments]
    return subprocess.Popen(
        command,
        stdin=options.pop("stdin", subprocess.PIPE),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | options.pop("env", {}),
        **options,
    )


@pytest.fixture
def onward():
    """Run a command to its end; answers its exit code, output and errors."""

    def run(*arguments, given="", **options):
        process = start(*arguments, **options)
        output, errors = process.communicate(given, timeout=60)
        assert "Traceback" not in errors, errors
        return process.returncode, output, errors

    return run
