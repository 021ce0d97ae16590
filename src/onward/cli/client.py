"""A small client of a running server, for the commands that talk to one."""

import argparse
import json
import os
import time
from collections.abc import Generator
from typing import Any
from urllib.parse import quote, urlsplit

import httpx

from onward.cli.error import CommandError

TIMEOUT = httpx.Timeout(600.0, connect=10.0)
POLL_S = 0.2


class Client:
    """Requests to one server, with its failures as `CommandError`."""

    def __init__(self, chosen: argparse.Namespace) -> None:
        parts = urlsplit(chosen.url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise CommandError(f"{chosen.url!r} is no address; write --url http://HOST:PORT/v1")
        self.origin = f"{parts.scheme}://{parts.netloc}"
        self.base = self.origin + (parts.path.rstrip("/") or "/v1")
        # Certificates take long to read, and over plain HTTP there is nothing to verify.
        self._http = httpx.Client(
            timeout=TIMEOUT, headers=_authorization(chosen.api_key_env), verify=parts.scheme == "https"
        )
        if chosen.wait:
            self._wait(chosen.wait)

    def get(self, path: str) -> Any:
        """The JSON answer of a GET under the base URL."""
        return self._json("GET", path, None)

    def as_operator(self, variable: str) -> None:
        """Speak to the admin API from now on. `variable`: of the environment, with its token."""
        token = os.environ.get(variable, "")
        if not token.isascii() or not token.isprintable() or not token:
            raise CommandError(
                f"this asks the admin API: put the token that the server has in {variable} into {variable}"
            )
        self._http.headers["authorization"] = f"Bearer {token}"
        self.base = f"{self.origin}/admin/v1"

    def post(self, path: str, body: bytes) -> Any:
        """The JSON answer to a JSON body."""
        return self._json("POST", path, body)

    def stream(self, path: str, body: dict[str, Any]) -> Generator[dict[str, Any], None, None]:
        """The events of a streamed answer. Closing the iterator hangs up."""
        try:
            with self._http.stream("POST", self.base + path, json=body) as response:
                if response.status_code != 200:
                    response.read()
                    raise CommandError(_refusal(response))
                for line in response.iter_lines():
                    if line == "data: [DONE]":
                        return
                    if line.startswith("data:"):
                        event = json.loads(line[5:])
                        if "error" in event:
                            raise CommandError(_message(event) or "the server broke off")
                        yield event
        except (httpx.TransportError, json.JSONDecodeError) as error:
            raise self._unreachable(error) from None
        raise CommandError("the answer was cut off; try again")

    def model(self, chosen: str | None) -> str:
        """The chosen model, or the server's first."""
        if chosen is not None:
            return chosen
        models = self.get("/models")["data"]
        if not models:
            raise CommandError("the server has no model for this key; name one with --model")
        return models[0]["id"]

    def _json(self, method: str, path: str, body: bytes | None) -> Any:
        try:
            headers = {"content-type": "application/json"} if body is not None else None
            response = self._http.request(method, self.base + quote(path), content=body, headers=headers)
            if response.status_code != 200:
                raise CommandError(_refusal(response))
            return response.json()
        except (httpx.TransportError, json.JSONDecodeError) as error:
            raise self._unreachable(error) from None

    def _wait(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while True:
            try:
                response = self._http.get(f"{self.origin}/readyz", timeout=5)
                if response.status_code == 200:
                    return
                why = _message_of(response) or f"/readyz answers {response.status_code}"
            except httpx.TransportError as error:
                why = f"TLS failed: {error}" if "SSL" in str(error) else "nothing answers there"
            if time.monotonic() >= end:
                raise CommandError(f"{self.origin} is not ready after {seconds:g} s ({why}); look at its log")
            time.sleep(POLL_S)

    def _unreachable(self, error: Exception) -> CommandError:
        if isinstance(error, httpx.ConnectError) and "SSL" in str(error):
            return CommandError(
                f"TLS with {self.origin} failed ({error}); if it speaks plain HTTP, say http:// in --url"
            )
        if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
            return CommandError(
                f"no server answers at {self.origin}; start one (`onward serve`), or name another with --url"
            )
        why = str(error) or type(error).__name__
        return CommandError(f"the connection to {self.origin} broke ({why}); look at the server's log")


def _authorization(variable: str | None) -> dict[str, str]:
    name = variable or "ONWARD_API_KEY"
    key = os.environ.get(name, "")
    if variable and not key:
        raise CommandError(f"the environment variable {variable} is not set; put the key into it")
    if not key.isascii() or not key.isprintable():
        raise CommandError(f"the key in {name} holds characters that no key has; set it anew")
    return {"authorization": f"Bearer {key}"} if key else {}


def _refusal(response: httpx.Response) -> str:
    message = _message_of(response)
    if message:
        return message
    return f"{response.url} answered {response.status_code}; check that --url names an OpenAI base URL"


def _message_of(response: httpx.Response) -> str | None:
    try:
        return _message(response.json())
    except (json.JSONDecodeError, UnicodeDecodeError):
        return None


def _message(body: Any) -> str | None:
    error = body.get("error") if isinstance(body, dict) else None
    message = error.get("message") if isinstance(error, dict) else error
    return " ".join(message.split()) if isinstance(message, str) else None
