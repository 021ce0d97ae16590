"""Paths with a part that names something, at the end or in the middle."""

import pytest

from onward.dialects import DIALECTS
from onward.http.routes import Route, Routes


async def nothing(exchange) -> None:
    """An endpoint."""


@pytest.fixture
def routes() -> Routes:
    routes = Routes({"/v1": DIALECTS["openai"]})
    for path in (
        "/a",
        "/a/{rest}",
        "/a/tenants",
        "/a/tenants/{name}",
        "/a/tenants/{name}/credits",
        "/v1/models/{model}",
    ):
        routes.add("GET", path, Route(endpoint=nothing, surface=path))
    return routes


@pytest.mark.parametrize(
    ("path", "route", "named"),
    [
        ("/a", "/a", ""),
        ("/a/tenants", "/a/tenants", ""),
        ("/a/tenants/", "/a/{rest}", "tenants/"),
        ("/a/tenants/x", "/a/tenants/{name}", "x"),
        ("/a/tenants/x/y", "/a/tenants/{name}", "x/y"),
        ("/a/tenants/x/credits", "/a/tenants/{name}/credits", "x"),
        ("/a/tenants/x/y/credits", "/a/tenants/{name}/credits", "x/y"),
        ("/a/tenants/credits", "/a/tenants/{name}", "credits"),
        ("/a/tenants//credits", "/a/tenants/{name}", "/credits"),
        ("/a/tenants/credits/credits", "/a/tenants/{name}/credits", "credits"),
        ("/a/x", "/a/{rest}", "x"),
        ("/v1/models/org/name", "/v1/models/{model}", "org/name"),
        ("/v1/models/", None, ""),
        ("/b", None, ""),
    ],
)
def test_the_most_specific_route_answers(routes, path, route, named):
    found = routes.find(path)
    if route is None:
        assert found is None
    else:
        methods, tail = found
        assert (methods["GET"].surface, methods["HEAD"].surface, tail) == (route, route, named)


def test_methods_of_a_path_gather(routes):
    routes.add("POST", "/a/tenants/{other}/credits", Route(endpoint=nothing, surface="more"))
    methods, _ = routes.find("/a/tenants/x/credits")
    assert set(methods) == {"GET", "HEAD", "POST"}
