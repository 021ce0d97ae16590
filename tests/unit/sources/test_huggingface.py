"""Models on a hub, here one on this machine."""

import json
import os
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from onward.sources import SourceError, fetch
from onward.sources.huggingface import Place, parse_place

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class _Hub(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status, body, headers=None):
        self.send_response(status)
        for name, value in ({"content-length": str(len(body))} | (headers or {})).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_GET(self):
        files = self.server.files
        self.server.asked.append((self.command, self.path, self.headers.get("authorization")))
        api = re.match(r"/api/models/org/(\w+)/tree/(\w+)(?:\?|$)", self.path)
        file = re.match(r"/org/(\w+)/resolve/(\w+)/([^?]+)", self.path)
        if api and api[1] == "repo":
            tree = [{"type": "file", "path": name, "oid": "0" * 40, "size": 9} for name in files]
            self.answer(200, json.dumps(tree).encode(), {"content-type": "application/json"})
        elif file and file[1] == "repo" and file[3] in files:
            body = files[file[3]]
            self.answer(200, body, {"etag": f'"{len(body):040x}"', "x-repo-commit": COMMIT})
        elif file and file[1] == "repo":
            self.answer(404, b"", {"x-error-code": "EntryNotFound", "x-repo-commit": COMMIT})
        else:
            self.answer(404, b"", {"x-error-code": "RepoNotFound"})

    do_HEAD = do_GET  # noqa: N815 - the base class looks for this name

    def log_message(self, *_):
        pass


@pytest.fixture
def hub(tmp_path):
    """A hub, and a way to fetch from it: the client reads its settings once, at import."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Hub)
    server.daemon_threads = True
    server.files = {"README.md": b"x"}
    server.asked = []
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    program = (
        "import sys\nfrom onward.sources import SourceError, fetch\n"
        "try:\n    print(fetch(sys.argv[1]))\nexcept SourceError as error:\n    print('refused:', error)"
    )

    def run(source, **environment):
        settings = {
            "HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}",
            "HF_HOME": str(tmp_path / "hub"),
            "HF_TOKEN": "hf_secret",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "NO_PROXY": "127.0.0.1",
        }
        done = subprocess.run(
            [sys.executable, "-c", program, source],
            env=os.environ | settings | environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    run.server = server
    yield run
    server.shutdown()
    server.server_close()
    thread.join()


def test_fetches_the_only_model_and_keeps_it(hub):
    """The second time, the named file needs no network at all."""
    hub.server.files["m.gguf"] = b"GGUF one"
    path = hub("hf:org/repo")
    assert path.endswith("/m.gguf")
    assert Path(path).read_bytes() == b"GGUF one"
    assert ("GET", "/org/repo/resolve/main/m.gguf", "Bearer hf_secret") in [
        (method, path.replace(COMMIT, "main"), key) for method, path, key in hub.server.asked
    ]
    hub.server.asked.clear()
    assert hub("hf:org/repo/m.gguf") == path
    assert hub.server.asked == []
    assert hub("hf:org/repo", HF_HUB_OFFLINE="1") == path


def test_lists_the_models_where_there_are_several(hub):
    hub.server.files |= {"a-Q2_K.gguf": b"GGUF", "a-Q8_0.gguf": b"GGUF"}
    said = hub("hf:org/repo")
    assert (
        said == "refused: hf:org/repo holds 2 models (a-Q2_K.gguf, a-Q8_0.gguf); name one: hf:org/repo/FILE"
    )


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("hf:org/nothere", "is not there, or private"),
        ("hf:org/repo/x.gguf", "hf:org/repo has no x.gguf"),
        ("hf:org/repo", "holds no .gguf model file"),
    ],
)
def test_says_what_is_wrong(hub, source, words):
    said = hub(source)
    assert said.startswith("refused: ")
    assert words in said
    assert "\n" not in said


@pytest.mark.parametrize("source", ["hf:org/repo", "hf:org/repo/m.gguf"])
def test_offline_with_nothing_cached_is_one_line(hub, source):
    said = hub(source, HF_HUB_OFFLINE="1")
    assert "is not cached and" in said
    assert "--model PATH" in said
    assert "\n" not in said


@pytest.mark.parametrize("source", ["hf:org/repo", "hf:org/repo/m.gguf"])
def test_an_unreachable_hub_is_one_line(hub, source):
    said = hub(source, HF_ENDPOINT="http://127.0.0.1:9")
    assert "is not cached and http://127.0.0.1:9 cannot be reached" in said
    assert "\n" not in said


def test_reads_the_parts_of_a_source():
    assert parse_place("Org/Repo-1.5") == Place("Org/Repo-1.5", None, None)
    assert parse_place("o/r@v1/sub/m.gguf") == Place("o/r", "v1", "sub/m.gguf")


@pytest.mark.parametrize("rest", ["", "repo", "org/", "/repo", "o/r/../x", "o/r//x", "o/r@", "-o/r"])
def test_refuses_what_is_no_repository(rest):
    with pytest.raises(SourceError, match="is no repository"):
        fetch(f"hf:{rest}")
