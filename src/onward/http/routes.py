"""Which endpoint answers a path: a table of exact paths, and of paths with a part that names something."""

import difflib
from collections.abc import Awaitable, Callable

import msgspec

from onward.dialects.schema import Dialect, Surface
from onward.http.exchange import Exchange

_LONGEST_MEANT = 200
Endpoint = Callable[[Exchange], Awaitable[None]]


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """A method of a path and what answers it."""

    endpoint: Endpoint
    surface: str
    """Its name in metrics and logs."""
    dialect: Dialect | None = None
    """Who speaks here; None: whose mount the path is under."""
    table: Surface | None = None
    """The dialect's surface that it answers."""
    open: bool = False
    """Whether it is answered without a key."""
    quiet: bool = False
    """Whether good answers are left out of the log: probes come every second."""


class Routes:
    """All routes, and the dialect that speaks under each mount."""

    def __init__(self, mounts: dict[str, Dialect]) -> None:
        self._exact: dict[str, dict[str, Route]] = {}
        self._open: list[tuple[str, str, dict[str, Route]]] = []
        """What stands before and behind the part that names something; the longest first."""
        self._mounts = sorted(mounts.items(), key=lambda item: -len(item[0]))
        self._default = next(iter(mounts.values()))

    def add(self, method: str, path: str, route: Route) -> None:
        """Answer a path. A part in braces takes everything that stands there, slashes too: ``…/{model}``,
        ``…/{name}/credits``. A GET answers HEAD as well.
        """
        before, brace, rest = path.partition("{")
        if brace:
            behind = rest.partition("}")[2]
            known = [methods for one, other, methods in self._open if (one, other) == (before, behind)]
            methods = known[0] if known else {}
            if not known:
                self._open.append((before, behind, methods))
                self._open.sort(key=lambda one: (-len(one[0]), -len(one[1])))
        else:
            methods = self._exact.setdefault(path, {})
        methods[method] = route
        if method == "GET":
            methods["HEAD"] = route

    def has(self, method: str, path: str) -> bool:
        """Whether an exact path is answered already."""
        return method in self._exact.get(path, {})

    def find(self, path: str) -> tuple[dict[str, Route], str] | None:
        """The routes of a path by method, and what its open part names."""
        methods = self._exact.get(path)
        if methods is not None:
            return methods, ""
        for before, behind, methods in self._open:
            size = len(path) - len(behind)
            if size > len(before) and path.startswith(before) and path.endswith(behind):
                return methods, path[len(before) : size]
        return None

    def closest(self, path: str) -> str | None:
        """A path that is answered and was probably meant by one that is not: `/v1` forgotten or said
        twice, a slash too many, a typing error.
        """
        path = f"/{path[:_LONGEST_MEANT].strip('/')}"
        if path == "/":
            return None
        for mount, _ in self._mounts:
            if self.find(mount + path):
                return mount + path
        paths = [known for known in self._exact if known != "/"]
        ends = [known for known in paths if path.endswith(known)]
        return (
            max(ends, key=len) if ends else next(iter(difflib.get_close_matches(path, paths, 1, 0.85)), None)
        )

    def table(self, path: str) -> Surface | None:
        """Whose failures are shown for a path that nothing answers: of a surface that has a shape of its own
        for them, and that was probably meant.
        """
        for mount, dialect in self._mounts:
            if path.startswith(mount) and path[len(mount) : len(mount) + 1] in ("", "/"):
                rest = path[len(mount) :]
                for surface in dialect.surfaces.values():
                    meant = rest.endswith(surface.path) or rest.startswith(surface.path + "/")
                    if surface.failures is not None and meant:
                        return surface
                return None
        return None

    def dialect(self, path: str) -> Dialect:
        """Whose errors are shown for a path; outside of every mount the first dialect's."""
        for mount, dialect in self._mounts:
            if path.startswith(mount) and path[len(mount) : len(mount) + 1] in ("", "/"):
                return dialect
        return self._default
