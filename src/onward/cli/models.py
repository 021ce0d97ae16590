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
