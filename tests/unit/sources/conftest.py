"""A package index on this machine: wheels over HTTP, with ranges, and ways to misbehave."""

import hashlib
import io
import re
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from onward.sources import download


def make_wheel(name, version, members):
    """The bytes of a wheel that pip accepts, with more members."""
    stem = name.replace("-", "_")
    info = f"{stem}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nRequires-Dist: no-such-thing\n"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path, content in members.items():
            archive.writestr(path, content)
        archive.writestr(f"{info}/METADATA", metadata)
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return buffer.getvalue(), metadata.encode()


class PackageIndex:
    """Serves files; counts what was asked for."""

    def __init__(self):
        self.files = {}
        self.hashes = {}
        self.pages = {}
        self.asked = []
        self.cut_at = None
        """Hang up after so many bytes of a file's answer."""
        self.hold_at = None
        """Stop in the middle of a file's answer, set `held`, and go on after `release`."""
        self.held, self.release = threading.Event(), threading.Event()
        self.ranges = True
        self.statuses = []
        """Answer these statuses to the next requests for files."""

    def add(self, name, version, members):
        """Offer a wheel; answers its file name."""
        content, metadata = make_wheel(name, version, members)
        file = f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
        self.files[file] = content
        self.files[f"{file}.metadata"] = metadata
        self.hashes[file] = hashlib.sha256(content).hexdigest()
        core = hashlib.sha256(metadata).hexdigest()
        link = f'<a href="/files/{file}#sha256={self.hashes[file]}" data-core-metadata="sha256={core}">{file}</a>'
        self.pages[name] = self.pages.get(name, "") + link
        return file

    def wheel_requests(self):
        """What was asked of wheels: the ranges."""
        return [asked for path, asked in self.asked if path.endswith(".whl")]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        index = self.server.index
        index.asked.append((self.path, self.headers.get("range")))
        page = re.fullmatch(r"/simple/([^/]+)/", self.path)
        if page and page[1] in index.pages:
            body = f"<html><body>{index.pages[page[1]]}</body></html>".encode()
            self.answer(200, body, {"content-type": "text/html"})
            return
        body = index.files.get(self.path.removeprefix("/files/"))
        if body is None:
            self.answer(404, b"")
        elif not self.path.endswith(".whl"):
            self.answer(200, body)
        elif index.statuses:
            self.answer(index.statuses.pop(0), b"")
        else:
            self.file(index, body)

    def file(self, index, body):
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("range") or "")
        if not asked or not index.ranges:
            self.answer(200, body, {"accept-ranges": "bytes"}, cut=index.cut_at)
        elif int(asked[1]) >= len(body):
            self.answer(416, b"", {"content-range": f"bytes */{len(body)}"})
        else:
            start = int(asked[1])
            place = {"content-range": f"bytes {start}-{len(body) - 1}/{len(body)}"}
            self.answer(206, body[start:], place, cut=index.cut_at)

    def answer(self, status, body, headers=None, cut=None):
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        index = self.server.index
        if cut is None and index.hold_at is not None and len(body) > index.hold_at:
            self.wfile.write(body[: index.hold_at])
            index.held.set()
            index.release.wait(60)
            return
        self.wfile.write(body[:cut])
        if cut is not None and cut < len(body):
            self.close_connection = True

    def log_message(self, *_):
        pass


@pytest.fixture
def index(tmp_path, monkeypatch):
    """The index, set as the only one that pip knows; an empty cache beside it."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # a client that hangs up is what some tests are about
    server.index = PackageIndex()
    server.index.origin = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    monkeypatch.setenv("PIP_INDEX_URL", f"{server.index.origin}/simple/")
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_CONSTRAINT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("ONWARD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(download, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(download, "LONGEST_PAUSE_S", 0.02)
    yield server.index
    server.index.release.set()
    server.shutdown()
    server.server_close()
    thread.join()
