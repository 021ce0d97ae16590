"""What goes over the socket between an engine process and its clients.

A frame is a length (4 bytes, little-endian) and that many bytes of MessagePack. Both sides are of
the same installation, so there is no version to agree on.
"""

from typing import Any

import msgspec

from onward.core.failure import Failure, FailureKind
from onward.core.generate import EngineFinish, GenerateRequest, ScoredToken
from onward.core.image import ImageSpan

MAX_FRAME = 256 * 1024 * 1024
"""Bytes. A longer frame is a fault, not a message."""

# From a client.


class Submit(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Start a request. `id` is the connection's own."""

    id: int
    request: GenerateRequest


class Cancel(msgspec.Struct, frozen=True, array_like=True, tag=True):
    id: int


class LoadAdapter(msgspec.Struct, frozen=True, array_like=True, tag=True):
    id: int
    name: str
    path: str


class MeasureImages(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """What would images of these sizes (width, height) take?"""

    id: int
    sizes: list[tuple[int, int]]


# From an engine.


class Hello(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The first frame on a connection."""

    vocabulary: int
    context_length: int
    slots: int
    pid: int
    """Of the engine's process."""


class Down(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Instead of `Hello`, from the supervisor: the engine does not start, and why."""

    detail: str


class Progress(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A `Chunk` of one request."""

    id: int
    tokens: list[ScoredToken]
    finish: EngineFinish | None = None
    cached_tokens: int | None = None
    prompt_tokens: list[ScoredToken] | None = None


class Step(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """What one step gave to the requests of this connection."""

    progress: list[Progress]


class Refused(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A request, or the loading of an adapter, ended with a failure."""

    id: int
    kind: FailureKind
    message: str
    param: str | None = None
    retry_after: int | None = None

    def failure(self) -> Failure:
        return Failure(self.kind, self.message, param=self.param, retry_after=self.retry_after)


class Loaded(msgspec.Struct, frozen=True, array_like=True, tag=True):
    id: int


class Measured(msgspec.Struct, frozen=True, array_like=True, tag=True):
    id: int
    spans: list[ImageSpan]


class Load(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """How busy the engine is. Sent when it has changed, a few times a second at most."""

    running: int
    waiting: int
    cached_prefixes: int


FromClient = Submit | Cancel | LoadAdapter | MeasureImages
FromEngine = Hello | Down | Step | Refused | Loaded | Measured | Load

_encoder = msgspec.msgpack.Encoder()
decode_from_client = msgspec.msgpack.Decoder(FromClient).decode
decode_from_engine = msgspec.msgpack.Decoder(FromEngine).decode


def encode(message: FromClient | FromEngine) -> bytes:
    buffer = bytearray(4)
    _encoder.encode_into(message, buffer, 4)
    buffer[0:4] = (len(buffer) - 4).to_bytes(4, "little")
    return bytes(buffer)


class FrameError(Exception):
    """The other side does not speak this protocol."""


class FrameReader:
    """Cuts a stream of bytes into frames, however it arrives."""

    def __init__(self, decode: Any) -> None:
        self._decode = decode
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Any]:
        """The messages that `data` completes. Raises `FrameError`."""
        buffer = self._buffer
        buffer += data
        messages: list[Any] = []
        start = 0
        while len(buffer) - start >= 4:
            size = int.from_bytes(buffer[start : start + 4], "little")
            if size > MAX_FRAME:
                raise FrameError(f"a frame of {size} bytes")
            end = start + 4 + size
            if len(buffer) < end:
                break
            try:
                messages.append(self._decode(memoryview(buffer)[start + 4 : end]))
            except msgspec.MsgspecError as error:
                raise FrameError(str(error)) from error
            start = end
        del buffer[:start]
        return messages
