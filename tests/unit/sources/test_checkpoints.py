"""Checkpoints on disk: which are there, which are whole, and which are somewhere else."""

import json
import os
import struct

import pytest

from onward.sources.checkpoints import CheckpointFolder
from onward.sources.safetensors import IncompleteError, read_tensors
from tests.checkpoints import CONFIG, WEIGHTS, config, safetensors

PATH = "tinker://run/sampler_weights/name"
SMALL = safetensors({"a": ("F32", (2, 3), bytes(24)), "b": ("BF16", (1,), b"xy"), "c": ("F32", (0,), b"")})


@pytest.fixture
def root(tmp_path):
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


def put(folder, weights=SMALL):
    folder.mkdir(parents=True)
    (folder / CONFIG).write_bytes(config())
    (folder / WEIGHTS).write_bytes(weights)
    return folder


@pytest.fixture
def place(root):
    return put(root / "run" / "sampler_weights" / "name")


@pytest.mark.covers("TC-1")
def test_a_checkpoint_is_read_whole(root, place):
    folder = CheckpointFolder(root)
    saved = folder.read(PATH)
    assert saved.base == "HuggingFaceTB/SmolLM2-135M-Instruct"
    assert [(one.name, one.dtype, one.shape, one.size) for one in saved.tensors] == [
        ("a", "F32", (2, 3), 24),
        ("b", "BF16", (1,), 2),
        ("c", "F32", (0,), 0),
    ]
    data = (place / WEIGHTS).read_bytes()
    assert data[saved.tensors[1].offset :][:2] == b"xy"
    assert saved.version == folder.version(PATH)


@pytest.mark.covers("TC-1")
@pytest.mark.parametrize("name", ["step-9", "000080", "a.b", "x:train:0", "A_b@c=1", "n" * 200])
def test_names_that_trainers_give(root, name):
    put(root / name / "sampler_weights" / name)
    assert CheckpointFolder(root).read(f"tinker://{name}/sampler_weights/{name}") is not None


@pytest.mark.covers("TC-1")
def test_half_written_weights_are_not_there_at_any_length(root, place):
    folder = CheckpointFolder(root)
    for length in range(len(SMALL)):
        (place / WEIGHTS).write_bytes(SMALL[:length])
        with pytest.raises(IncompleteError):
            folder.read(PATH)
    (place / WEIGHTS).write_bytes(SMALL + b"\0")
    with pytest.raises(IncompleteError):
        folder.read(PATH)
    (place / WEIGHTS).write_bytes(SMALL)
    assert folder.read(PATH) is not None


@pytest.mark.covers("TC-1")
def test_a_half_written_config_is_not_there_at_any_length(root, place):
    folder = CheckpointFolder(root)
    for length in range(len(config())):
        (place / CONFIG).write_bytes(config()[:length])
        with pytest.raises(IncompleteError):
            folder.read(PATH)


@pytest.mark.covers("TC-1")
@pytest.mark.parametrize("name", [CONFIG, WEIGHTS])
def test_both_files_are_needed(root, place, name):
    (place / name).unlink()
    with pytest.raises(IncompleteError, match=f"{name} is missing"):
        CheckpointFolder(root).read(PATH)


@pytest.mark.parametrize("content", [b"[]", b"null", b"\xff", b"{" * 10_000, b" " * (1 << 20) + b"{}"])
def test_what_is_no_config(root, place, content):
    (place / CONFIG).write_bytes(content)
    with pytest.raises(IncompleteError):
        CheckpointFolder(root).read(PATH)


@pytest.mark.parametrize("name", [CONFIG, WEIGHTS])
def test_a_pipe_is_no_file_and_is_not_opened(root, place, name):
    (place / name).unlink()
    os.mkfifo(place / name)
    with pytest.raises(IncompleteError, match="is no file"):
        CheckpointFolder(root).read(PATH)


TRICKS = [
    "tinker://run/sampler_weights/..",
    "tinker://../root/run/sampler_weights/name",
    "tinker://run/../run/sampler_weights/name",
    "tinker://./run/sampler_weights/name",
    "tinker:///run/sampler_weights/name",
    "tinker://run//sampler_weights/name",
    "tinker://run/sampler_weights//name",
    "tinker://run/sampler_weights/name/",
    "tinker://run/sampler_weights/name/.",
    "tinker://run/sampler_weights/name\n",
    "tinker://run/sampler_weights/na\0me",
    "tinker://run/sampler_weights/name\0",
    "tinker://run/sampler_weights/%6eame",
    "tinker://run/sampler_weights/nam\u0435",
    "tinker://run\\sampler_weights\\name",
    "tinker://run/weights/name",
    "tinker://run/SAMPLER_WEIGHTS/name",
    "tinker://run/sampler_weights/.hidden",
    "tinker://run/sampler_weights/" + "n" * 201,
    "tinker://run/sampler_weights/" + "n" * 255,
    "tinker://run/sampler_weights",
    "tinker://",
    "TINKER://run/sampler_weights/name",
    "run/sampler_weights/name",
    "/run/sampler_weights/name",
    "file://run/sampler_weights/name",
]


@pytest.mark.covers("TC-1")
@pytest.mark.parametrize("path", TRICKS)
def test_paths_that_are_none_lead_nowhere(root, place, path):
    (root / "run" / "sampler_weights" / ".hidden").mkdir()
    assert CheckpointFolder(root).read(path) is None
    assert CheckpointFolder(root).version(path) is None


@pytest.mark.covers("TC-1")
@pytest.mark.parametrize("level", ["run", "run/sampler_weights", "run/sampler_weights/name"])
def test_links_out_of_the_root_lead_nowhere(root, tmp_path, level):
    outside = put(tmp_path / "outside" / "run" / "sampler_weights" / "name")
    link = root / level
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(tmp_path / "outside" / level)
    assert CheckpointFolder(root).read(PATH) is None
    assert CheckpointFolder(outside.parent.parent.parent).read(PATH) is not None


@pytest.mark.covers("TC-1")
@pytest.mark.parametrize("name", [CONFIG, WEIGHTS])
def test_files_that_are_links_out_of_the_root_lead_nowhere(root, place, tmp_path, name):
    (place / name).rename(tmp_path / name)
    (place / name).symlink_to(tmp_path / name)
    assert CheckpointFolder(root).read(PATH) is None


def test_a_link_inside_the_root_is_another_name(root, place):
    (place.parent / "latest").symlink_to("name")
    assert CheckpointFolder(root).read("tinker://run/sampler_weights/latest") is not None


def test_a_loop_of_links_leads_nowhere(root):
    (root / "run").symlink_to("run")
    assert CheckpointFolder(root).read(PATH) is None


def test_the_root_itself_may_be_a_link_and_may_go_away(root, place, tmp_path):
    (tmp_path / "link").symlink_to(root)
    folder = CheckpointFolder(tmp_path / "link")
    assert folder.read(PATH) is not None
    root.rename(tmp_path / "gone")
    assert folder.read(PATH) is None


def test_writing_again_is_another_version(root, place):
    folder = CheckpointFolder(root)
    before = folder.version(PATH)
    times = (place / WEIGHTS).stat()
    (place / "new").write_bytes(SMALL[:-1] + b"!")
    (place / "new").replace(place / WEIGHTS)
    os.utime(place / WEIGHTS, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert folder.version(PATH) != before


def _header(text: str, body: bytes = b"") -> bytes:
    return struct.pack("<Q", len(text)) + text.encode() + body


def _entry(**fields) -> str:
    return json.dumps({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4], **fields}})


@pytest.mark.parametrize(
    "content",
    [
        struct.pack("<Q", 1 << 60),
        _header("[]"),
        _header('{"a": 1}'),
        _header("{" * 100_000),
        _header('{"\udc00"}'.encode("utf-8", "replace").decode()),
        _header(_entry(shape=[-1]), bytes(4)),
        _header(_entry(shape=[1 << 40, 1 << 40]), bytes(4)),
        _header(_entry(shape=[2]), bytes(4)),
        _header(_entry(shape=[1.5]), bytes(4)),
        _header(_entry(data_offsets=[4, 0]), bytes(4)),
        _header(_entry(data_offsets=[-4, 0]), bytes(4)),
        _header(_entry(data_offsets=[0]), bytes(4)),
        _header(_entry(data_offsets=[1, 5]), bytes(5)),
        _header(_entry(dtype=3), bytes(4)),
    ],
)  # fmt: skip
def test_headers_that_lie_are_no_whole_file(tmp_path, content):
    (tmp_path / "weights").write_bytes(content)
    with pytest.raises(IncompleteError):
        read_tensors(tmp_path / "weights")
