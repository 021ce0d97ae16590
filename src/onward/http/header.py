"""What a request's header must say before anybody looks at the request (RFC 9110, RFC 9112)."""

import re

import httptools

from onward.core.failure import Failure, FailureKind, excerpt
from onward.http.refusal import Refused, malformed

_UNKNOWN_METHOD = re.compile(rb"(?:^|\n)([!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}) (\S{1,8192}) HTTP/1\.[01]\r?\n")


def check_header(method: bytes, version: str, headers: list[tuple[bytes, bytes]]) -> None:
    """Raises `Refused`. Names of header fields are in lower case."""
    if method == b"CONNECT":
        raise unknown_method(method)
    if version not in ("1.0", "1.1"):
        raise malformed(f"HTTP/{version} is not spoken here: send HTTP/1.1.", 505)
    hosts = codings = 0
    coding = b""
    for name, value in headers:
        if name == b"host":
            hosts += 1
        elif name == b"transfer-encoding":
            codings += 1
            coding = value.strip().lower() if codings == 1 else coding + b"," + value.strip().lower()
    if hosts != 1 and (hosts or version == "1.1"):
        raise malformed(f"A request has exactly one Host header; this one has {hosts}.")
    if codings:
        _check_coding(version, coding)


def framing(headers: list[tuple[bytes, bytes]]) -> bytes:
    """A header that says of a body the same as `headers`, and nothing else."""
    kept = [
        name + b": " + value for name, value in headers if name in (b"content-length", b"transfer-encoding")
    ]
    return b"\r\n".join([b"POST / HTTP/1.1", *kept, b"", b""])


def unknown_method(method: bytes) -> Refused:
    """The refusal of a method that no resource here could have (RFC 9110 9.1)."""
    shown = excerpt(method.decode("latin-1"), 40)
    return Refused(Failure(FailureKind.METHOD_NOT_ALLOWED, f"The method {shown} is not known here."), 501)


def not_http(error: httptools.HttpParserError, data: bytes) -> tuple[Refused, tuple[bytes, bytes] | None]:
    """The refusal of bytes that the parser does not take; method and target, where it is the method."""
    if isinstance(error, httptools.HttpParserInvalidMethodError):
        lines: list[tuple[bytes, bytes]] = _UNKNOWN_METHOD.findall(data)
        if lines:
            return unknown_method(lines[-1][0]), lines[-1]
    return malformed("This is not a well-formed HTTP request."), None


def _check_coding(version: str, coding: bytes) -> None:
    if version == "1.0":
        raise malformed("HTTP/1.0 has no Transfer-Encoding: send Content-Length.")
    if coding == b"chunked":
        return
    *others, last = [one.strip() for one in coding.split(b",")]
    if last != b"chunked" or b"chunked" in others:
        raise malformed("A body whose Transfer-Encoding is not 'chunked' once, at the end, has no end.")
    shown = excerpt(coding.decode("latin-1"), 60)
    raise malformed(f"The Transfer-Encoding '{shown}' is not taken: send 'chunked' alone.", 501)
