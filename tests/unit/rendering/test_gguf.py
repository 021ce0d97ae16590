"""The GGUF header: every type, and files that are cut short or lie."""

import contextlib
import mmap
import random
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onward.rendering.gguf import GgufError, read_metadata

_FORMS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
VALUES: dict[str, tuple[int, Any]] = {
    "u8": (0, 255),
    "i8": (1, -128),
    "u16": (2, 65535),
    "i16": (3, -32768),
    "u32": (4, 2**32 - 1),
    "i32": (5, -(2**31)),
    "f32": (6, 0.5),
    "yes": (7, True),
    "no": (7, False),
    "text": (8, "naïve 😀"),
    "empty": (8, ""),
    "numbers": (9, (5, [1, -2, 3])),
    "flags": (9, (7, [True, False])),
    "strings": (9, (8, ["a", "", "日本"])),
    "nested": (9, (9, [(5, [1]), (8, ["x", "y"])])),
    "none": (9, (8, [])),
    "u64": (10, 2**64 - 1),
    "i64": (11, -(2**63)),
    "f64": (12, 1e300),
}


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(kind: int, value: Any) -> bytes:
    if kind == 8:
        return _string(value)
    if kind == 9:
        inner, items = value
        return struct.pack("<IQ", inner, len(items)) + b"".join(_value(inner, item) for item in items)
    return struct.pack("<" + _FORMS[kind], value)


def _file(pairs: dict[str, tuple[int, Any]], version: int = 3) -> bytes:
    body = b"".join(
        _string(key) + struct.pack("<I", kind) + _value(kind, value) for key, (kind, value) in pairs.items()
    )
    return b"GGUF" + struct.pack("<IQQ", version, 7, len(pairs)) + body


def _plain(kind: int, value: Any) -> Any:
    return [_plain(value[0], item) for item in value[1]] if kind == 9 else value


@pytest.mark.parametrize("version", [2, 3])
def test_every_type_of_value_is_read(version: int):
    read = read_metadata(_file(VALUES, version) + b"tensors follow")
    assert read == {key: _plain(*value) for key, value in VALUES.items()}
    assert type(read["yes"]) is bool


def test_a_file_may_be_mapped_and_is_let_go_of(tmp_path: Path):
    path = tmp_path / "model.gguf"
    path.write_bytes(_file(VALUES))
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    assert read_metadata(mapped)["text"] == "naïve 😀"
    mapped.close()


def test_a_cut_file_is_an_error_wherever_it_is_cut():
    whole = _file(VALUES)
    for size in range(len(whole)):
        with pytest.raises(GgufError):
            read_metadata(whole[:size])


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"PK\x03\x04" + bytes(40), "no GGUF"),
        (b"", "too short"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "version 1"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 2**60), "do not fit"),
        (_file({"a": (4, 1)}).replace(struct.pack("<I", 4) + struct.pack("<I", 1), struct.pack("<II", 99, 1)), "type 99"),
        (_file({"a": (9, (8, ["x"]))}).replace(struct.pack("<IQ", 8, 1), struct.pack("<IQ", 8, 2**50)), "do not fit"),
        (_file({"a": (9, (6, [1.0]))}).replace(struct.pack("<IQ", 6, 1), struct.pack("<IQ", 6, 2**61)), "do not fit"),
        (_file({"a": (8, "x")}).replace(_string("x"), struct.pack("<Q", 2**63) + b"x"), "do not fit"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 2) + (_string("k") + struct.pack("<IB", 0, 1)) * 2, "twice"),
        (_file({"a": (9, (9, [(9, [(9, [(9, [(5, [1])])])])]))}), "nested"),
    ],
)  # fmt: skip
def test_a_file_that_lies_is_an_error_that_says_how(data: bytes, says: str):
    with pytest.raises(GgufError, match=says):
        read_metadata(data)


@given(st.integers(0, 2**32), st.integers(1, 8))
def test_damage_is_read_or_refused_and_nothing_else(seed: int, changes: int):
    source = random.Random(seed)
    data = bytearray(_file(VALUES))
    for _ in range(changes):
        data[source.randrange(len(data))] = source.randrange(256)
    with contextlib.suppress(GgufError):
        read_metadata(data)


def test_the_real_file_has_its_vocabulary(gguf: Path):
    metadata = read_metadata(gguf.read_bytes())
    assert metadata["tokenizer.ggml.pre"] == "smollm"
    assert len(metadata["tokenizer.ggml.tokens"]) == 49152  # type: ignore[arg-type]
