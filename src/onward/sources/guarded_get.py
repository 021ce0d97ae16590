"""One image from an address that a caller named, without being led astray (G26).

A name is resolved once, here; every address of it is judged; we connect to a judged address as a
number, and TLS is verified for the name. So an answer that changes from one look-up to the next
reaches nothing. A redirect goes the same way from its start. No proxies, no cookies, no credentials.
"""

import ipaddress
import logging
import re
import ssl
from collections.abc import Collection
from typing import Final

import httpx
import msgspec

from onward.core.failure import excerpt
from onward.core.remote_image import RemoteImageError
from onward.sources.lookup import Resolve
from onward.sources.public_address import Guard

logger = logging.getLogger("onward")

MOST_TRIED: Final = 4
"""Addresses of one name that are connected to, one after the other."""
LONGEST_ADDRESS: Final = 8192
_LABEL: Final = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME: Final = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(?:\.{_LABEL})*")
_NUMBER: Final = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)")
"""Hosts that the rules of URLs read as an IPv4 address, however odd (`2130706433`, `0x7f.1`)."""
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_HEADERS: Final = {
    "Accept": "image/png, image/jpeg, image/gif, image/webp",
    "Accept-Encoding": "identity",
    "Connection": "close",
    "User-Agent": "onward",
}


class Bytes:
    """How much may still be read of several images."""

    def __init__(self, each: int, together: int) -> None:
        self.each = each
        self.together = together
        self._left = together

    def take(self, count: int) -> None:
        """Count in what has been read. Raises `RemoteImageError`."""
        self._left -= count
        if self._left < 0:
            raise RemoteImageError(
                f"is fetched with others that have more than {self.together} bytes together: send fewer",
                too_large=True,
            )


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What is fetched from where."""

    guard: Guard
    ports: Collection[int] = (80, 443)
    most_redirects: int = 0
    connect_s: float
    """To connect to one address."""


class GuardedGet:
    """Fetches one image after the other, each over connections of its own."""

    def __init__(self, rules: Rules, tls: ssl.SSLContext, resolve: Resolve) -> None:
        self._rules = rules
        self._tls = tls
        self._resolve = resolve

    async def get(self, address: str, room: Bytes) -> bytes:
        """What lies there. Raises `RemoteImageError`. How long it takes is for the caller to bound."""
        url = self._checked(_parsed(address))
        most = self._rules.most_redirects
        for left in range(most, -1, -1):
            found = await self._follow(url, room)
            if isinstance(found, bytes):
                return found
            if left:
                url = self._onwards(url, found)
        raise RemoteImageError(
            "answers with a redirect, and none is followed here: send the address that it leads to"
            if most == 0
            else f"answers with more than {most} redirects: send the address that they lead to"
        )

    def _checked(self, url: httpx.URL) -> httpx.URL:
        """An address whose form is one that we fetch, its host in plain letters."""
        if url.userinfo:
            raise RemoteImageError("holds a user's name or password: leave them out")
        port = _port_of(url)
        if port not in self._rules.ports:
            known = ", ".join(map(str, sorted(self._rules.ports)))
            raise RemoteImageError(f"has the port {port}, and images are only fetched from {known}")
        host = _host(url)
        if host is None:
            raise RemoteImageError("has a host that is neither a name nor a plain IP address")
        return url.copy_with(host=host, fragment=None)

    def _onwards(self, url: httpx.URL, location: str) -> httpx.URL:
        """Where a redirect leads. All that is wrong with it reads the same."""
        try:
            following = self._checked(_parsed(str(url.join(location[: LONGEST_ADDRESS + 1]))))
        except (RemoteImageError, httpx.InvalidURL, ValueError):
            raise _not_fetched(url, "a redirect to no address that is fetched") from None
        if url.scheme == "https" and following.scheme != "https":
            raise _not_fetched(url, "a redirect out of TLS")
        return following

    async def _follow(self, url: httpx.URL, room: Bytes) -> bytes | str:
        """The image at an address, or where it redirects to."""
        why = ""
        for number in await self._numbers(url):
            try:
                return await self._ask(url, number, room)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                why = excerpt(error, 200)
            except (httpx.TransportError, OSError) as error:  # OSError: TLS that breaks while it is read
                why = excerpt(error, 200)
                break
        raise _not_fetched(url, why)

    async def _numbers(self, url: httpx.URL) -> list[str]:
        """The addresses of a host, at least one. A host with one that is not allowed has none."""
        host = url.raw_host.decode()
        found = [host] if _is_number(host) else await self._resolve(host, _port_of(url))
        allowed = [self._rules.guard.allowed(one) for one in dict.fromkeys(found)]
        if not found:
            raise _not_fetched(url, "no such name")
        if None in allowed:
            raise _not_fetched(url, "an address that is not public")
        return [one for one in allowed if one is not None][:MOST_TRIED]

    async def _ask(self, url: httpx.URL, number: str, room: Bytes) -> bytes | str:
        request = httpx.Request(
            "GET",
            url.copy_with(host=number),
            headers={"Host": url.netloc.decode(), **_HEADERS},
            extensions={
                "sni_hostname": url.raw_host.decode(),
                "timeout": {"connect": self._rules.connect_s},
            },
        )
        # A transport for each: a connection that was verified for one name is never used for another.
        async with httpx.AsyncHTTPTransport(verify=self._tls, trust_env=False) as transport:
            response = await transport.handle_async_request(request)
            try:
                if response.status_code in _REDIRECTS and "location" in response.headers:
                    return response.headers["location"]
                if response.status_code != 200:
                    raise RemoteImageError(f"answers with the status {response.status_code}")
                return await _body(response, room)
            finally:
                await response.aclose()


async def _body(response: httpx.Response, room: Bytes) -> bytes:
    """The body as it comes: nothing is unpacked, so that little cannot become much."""
    length = response.headers.get("content-length", "0")
    read = bytearray()
    large = length.isdecimal() and int(length[:20]) > room.each
    if not large:
        async for piece in response.stream:  # type: ignore[union-attr] - of an async transport
            room.take(len(piece))
            read += piece
            if large := len(read) > room.each:
                break
    if large:
        raise RemoteImageError(f"is an image of more than {room.each} bytes: scale it down", too_large=True)
    return bytes(read)


def _parsed(address: str) -> httpx.URL:
    if len(address) > LONGEST_ADDRESS:
        raise RemoteImageError(f"is an address of more than {LONGEST_ADDRESS} characters")
    try:
        url = httpx.URL(address)
    except (httpx.InvalidURL, ValueError):
        raise RemoteImageError("is no well-formed address") from None
    if url.scheme not in {"http", "https"}:
        raise RemoteImageError("is no http or https address")
    return url


def _port_of(url: httpx.URL) -> int:
    if url.port is not None:
        return url.port
    return 443 if url.scheme == "https" else 80


def _host(url: httpx.URL) -> str | None:
    """A host's one spelling; None for what some read as a name and others as a number."""
    host = url.raw_host.decode("ascii").lower()
    if _is_number(host):
        return host
    host = host.removesuffix(".")
    return None if _NUMBER.fullmatch(host) or not _NAME.fullmatch(host) else host


def _is_number(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _not_fetched(url: httpx.URL, why: str) -> RemoteImageError:
    """The one refusal of all that could tell of our network; the log alone says why."""
    logger.info("no image was fetched from %s: %s", url.raw_host.decode(), why)
    return RemoteImageError(NOT_FETCHED)


NOT_FETCHED: Final = (
    "is not fetched: it must be a public address that answers in time. Or send the image itself, "
    "as a base64 data URL"
)
