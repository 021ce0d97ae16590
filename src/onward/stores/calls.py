"""What goes over the socket between a worker and the process that owns the stores: calls of the ports.

A frame is a header (length of what follows the length, number of the call, a code; little-endian) and
MessagePack. The code of a call is its place in `METHODS`, the code of an answer one of `Answer`. Both
sides are of the same installation, so there is no version to agree on.
"""

import struct
from enum import IntEnum
from typing import Any, Final

import msgspec

from onward.admission.idempotency import Claim, ClaimResult
from onward.admission.keys import Key, Tenant
from onward.admission.ledger import Operation, Result
from onward.admission.limits import Exceeded, GiveBack, Take
from onward.admission.store import Directory, EntryPage, EntryQuery, Money, StoredKey, UsageQuery, UsageRow
from onward.core.failure import Failure, FailureKind

MAX_FRAME: Final = 64 * 1024 * 1024
"""Bytes. A longer one is a fault, and is never sent."""

_HEADER = struct.Struct("<IIB")
_AFTER_LENGTH = _HEADER.size - 4
_encoder = msgspec.msgpack.Encoder()


class Answer(IntEnum):
    """How a call ended."""

    RESULT = 0
    FAILURE = 1
    VALUE_ERROR = 2


class Method:
    """A method of a port: what it takes and gives, as types."""

    def __init__(self, name: str, arguments: Any, result: Any, *, keywords: tuple[str, ...] = ()) -> None:
        self.name = name
        self.keywords = keywords
        """Names of the last arguments, which go by name."""
        self.code = 0
        self.decode_arguments = msgspec.msgpack.Decoder(arguments).decode
        self.decode_result = msgspec.msgpack.Decoder(result).decode


# Of `Store`.
APPLY = Method("apply", tuple[list[Operation]], list[Result])
RENEW = Method("renew", tuple[str, int], None)
EXPIRE_LEASES = Method("expire_leases", tuple[int, frozenset[str]], int)
REVISION = Method("revision", tuple[()], int)
DIRECTORY = Method("directory", tuple[()], Directory)
ADD_KEY = Method("add_key", tuple[Key, str, int], StoredKey, keywords=("prefix", "at_ms"))
CHANGE_KEY = Method("change_key", tuple[Key], StoredKey | None)
REVOKE_KEY = Method("revoke_key", tuple[str, int], StoredKey | None)
KEYS = Method("keys", tuple[str | None, int], list[StoredKey], keywords=("after", "limit"))
KEY = Method("key", tuple[str], StoredKey | None)
TOUCH_KEYS = Method("touch_keys", tuple[dict[str, int]], None)
ADD_TENANT = Method("add_tenant", tuple[Tenant, int], None)
CHANGE_TENANT = Method("change_tenant", tuple[Tenant], bool)
CREDIT = Method("credit", tuple[str, int, str, int, str | None], Money, keywords=("note", "at_ms", "once"))
CANCEL = Method("cancel", tuple[str], bool)
MONEY = Method("money", tuple[list[str]], list[Money])
ENTRIES = Method("entries", tuple[EntryQuery], EntryPage)
USAGE = Method("usage", tuple[UsageQuery], list[UsageRow])
PRUNE = Method("prune", tuple[int], int)
CLAIM = Method("claim", tuple[list[Claim]], list[ClaimResult])
UNCLAIM = Method("unclaim", tuple[list[Claim]], None)
FORGET_ANSWERS = Method("forget_answers", tuple[int], int)
# Of `RateLimits`.
TAKE = Method("take", tuple[list[Take]], list[Exceeded | None])
GIVE_BACK = Method("give_back", tuple[list[GiveBack]], None)
RENEW_PLACES = Method("renew", tuple[str], None)
DROP_LEASE = Method("drop_lease", tuple[str], None)

STORE_METHODS: Final = (
    APPLY,
    RENEW,
    EXPIRE_LEASES,
    REVISION,
    DIRECTORY,
    ADD_KEY,
    CHANGE_KEY,
    REVOKE_KEY,
    KEYS,
    KEY,
    TOUCH_KEYS,
    ADD_TENANT,
    CHANGE_TENANT,
    CREDIT,
    CANCEL,
    MONEY,
    ENTRIES,
    USAGE,
    PRUNE,
    CLAIM,
    UNCLAIM,
    FORGET_ANSWERS,
)
LIMIT_METHODS: Final = (TAKE, GIVE_BACK, RENEW_PLACES, DROP_LEASE)
METHODS: Final = STORE_METHODS + LIMIT_METHODS
for _code, _method in enumerate(METHODS):
    _method.code = _code


class _Failed(msgspec.Struct, frozen=True, array_like=True):
    kind: FailureKind
    message: str
    param: str | None
    retry_after: int | None
    upstream_status: int | None


_decode_failed = msgspec.msgpack.Decoder(_Failed).decode
_decode_text = msgspec.msgpack.Decoder(str).decode


def encode(number: int, code: int, content: Any) -> bytearray:
    """A frame. Raises ValueError if it is too long."""
    frame = bytearray(_HEADER.size)
    _encoder.encode_into(content, frame, _HEADER.size)
    length = len(frame) - 4
    if length > MAX_FRAME:
        raise ValueError(f"a call or an answer of {length} bytes is too long")
    _HEADER.pack_into(frame, 0, length, number, code)
    return frame


def encode_error(number: int, error: Failure | ValueError) -> bytearray:
    """The answer of a call that raised."""
    if isinstance(error, ValueError):
        return encode(number, Answer.VALUE_ERROR, str(error))
    failed = _Failed(error.kind, error.message, error.param, error.retry_after, error.upstream_status)
    return encode(number, Answer.FAILURE, failed)


def decode_error(code: int, content: bytes) -> Failure | ValueError:
    """What a call raised, out of its answer. Raises `FrameError`."""
    try:
        if code == Answer.VALUE_ERROR:
            return ValueError(_decode_text(content))
        if code != Answer.FAILURE:
            raise FrameError(f"an answer of code {code}")
        failed = _decode_failed(content)
    except msgspec.MsgspecError as error:
        raise FrameError(str(error)) from error
    return Failure(
        failed.kind,
        failed.message,
        param=failed.param,
        retry_after=failed.retry_after,
        upstream_status=failed.upstream_status,
    )


class FrameError(Exception):
    """The other side does not speak this protocol."""


class FrameReader:
    """Cuts a stream of bytes into frames, however it arrives."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[tuple[int, int, bytes]]:
        """Number, code and content of the frames that `data` completes. Raises `FrameError`."""
        rest = self._rest
        source: bytes | bytearray = data
        if rest:
            rest += data
            source = rest
        frames: list[tuple[int, int, bytes]] = []
        start, size = 0, len(source)
        while size - start >= _HEADER.size:
            length, number, code = _HEADER.unpack_from(source, start)
            if not _AFTER_LENGTH <= length <= MAX_FRAME:
                raise FrameError(f"a frame of {length} bytes")
            end = start + 4 + length
            if end > size:
                break
            frames.append((number, code, bytes(source[start + _HEADER.size : end])))
            start = end
        if source is rest:
            del rest[:start]
        else:
            rest += source[start:]
        return frames
