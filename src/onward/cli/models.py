"""`onward models`: what a running server knows of its models."""

import argparse
import json
import sys
from typing import Any

from onward.cli.client import Client
from onward.cli.error import CommandError


def list_models(chosen: argparse.Namespace) -> None:
    """Print the ID of each model, and the length of its context."""
    for model in Client(chosen).get("/models")["data"]:
        length = model.get("context_length")
        print(f"{model['id']}\t{length}" if length else model["id"])


def show_model(chosen: argparse.Namespace) -> None:
    """Print what the server says of one model, as JSON."""
    print(json.dumps(Client(chosen).get(f"/models/{chosen.id}"), indent=2, ensure_ascii=False))


def explain_model(chosen: argparse.Namespace) -> None:
    """Print who would be asked for a model now, in this order, and who would not, and why."""
    client = Client(chosen)
    client.as_operator(chosen.admin_token_env)
    told = client.get(f"/models/{chosen.id}/explain")
    if chosen.json:
        print(json.dumps(told, indent=2, ensure_ascii=False))
        return
    print(f"{told['model']}, as process {told['process']} sees it")
    alike: dict[str, list[str]] = {}
    for route in told["routes"]:
        alike.setdefault(_route(route), []).append(f"{route['surface']} ({route['dialect']})")
    for lines, routes in alike.items():
        print(f"\n{', '.join(routes)}\n{lines}")
    for one in told["deployments"]:
        replicas = (one["provider"] or {}).get("replicas") or []
        if replicas:
            print(f"\nreplicas of {one['provider']['name']}, for {one['name']}")
        for replica in replicas:
            state = replica["breaker"]["state"].replace("_", " ")
            print(f"  {replica['name']}  {state}, {replica['in_flight']} in flight")


def _route(route: dict[str, Any]) -> str:
    asked = [f"  {n}. {_named(one)}: {one['why']}" for n, one in enumerate(route["asked"], 1)]
    never = [f"  -  {one['deployment']}: {one['why']}" for one in route["not_asked"]]
    return "\n".join([*asked, *never])


def _named(one: dict[str, Any]) -> str:
    return one["deployment"] + (f" (as {one['translated']})" if one["translated"] else "")


def render(chosen: argparse.Namespace) -> None:
    """Read a chat request and print the prompt that it becomes on a server, as JSON."""
    body = json.dumps(read_request() | {"model": chosen.id}).encode()
    print(json.dumps(Client(chosen).post("/render", body), ensure_ascii=False))


def read_request() -> dict[str, Any]:
    """The chat request on standard input."""
    try:
        request = json.load(sys.stdin)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise CommandError(f"the input is not JSON ({error}); give a chat request") from None
    if not isinstance(request, dict):
        raise CommandError("the input must be a JSON object, a chat request with `messages`")
    return request
