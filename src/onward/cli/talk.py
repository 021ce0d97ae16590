"""`onward complete` and `onward chat`: text from a running server, as it comes."""

import argparse
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any

from onward.cli.client import Client
from onward.cli.error import CommandError

LONGEST_COMPLETION = 256
LONGEST_ANSWER = 1024
"""Tokens where nobody says otherwise: a text has no natural end, and small models repeat themselves."""


def complete(chosen: argparse.Namespace) -> None:
    """Print what follows a prompt."""
    prompt = sys.stdin.read() if chosen.prompt == "-" else chosen.prompt
    client = Client(chosen)
    body = _body(client, chosen, LONGEST_COMPLETION) | {"prompt": prompt}
    with closing(client.stream("/completions", body)) as events:
        _print(event["choices"][0].get("text") for event in events if event.get("choices"))


def chat(chosen: argparse.Namespace) -> None:
    """Answer one message, or each line of the input in turn."""
    client = Client(chosen)
    settings = _body(client, chosen, LONGEST_ANSWER)
    messages: list[dict[str, str]] = []
    if chosen.system is not None:
        messages.append({"role": "system", "content": chosen.system})
    if chosen.message is not None:
        _answer(client, settings, [*messages, {"role": "user", "content": chosen.message}])
        return
    typed = sys.stdin.isatty()
    if typed:
        print(f"Talking to {settings['model']}. Ctrl-C stops an answer, Ctrl-D ends.", file=sys.stderr)
    for line in _lines(typed=typed):
        messages.append({"role": "user", "content": line})
        try:
            messages.append({"role": "assistant", "content": _answer(client, settings, messages)})
        except CommandError as error:
            if not typed:
                raise
            messages.pop()
            print(f"onward: {error}", file=sys.stderr)
        except KeyboardInterrupt:
            if not typed:
                raise
            messages.pop()
            print("\n(stopped; that message is forgotten)", file=sys.stderr)


def _body(client: Client, chosen: argparse.Namespace, longest: int) -> dict[str, Any]:
    body: dict[str, Any] = {"model": client.model(chosen.model), "stream": True}
    body["max_tokens"] = chosen.max_tokens or longest
    if chosen.temperature is not None:
        body["temperature"] = chosen.temperature
    return body


def _answer(client: Client, settings: dict[str, Any], messages: list[dict[str, str]]) -> str:
    with closing(client.stream("/chat/completions", settings | {"messages": messages})) as events:
        return _print(event["choices"][0]["delta"].get("content") for event in events if event.get("choices"))


def _print(pieces: Iterator[str | None]) -> str:
    """Print pieces as they come and a line's end after the last; answers the whole."""
    screen = sys.stdout.isatty()
    texts: list[str] = []
    try:
        for piece in pieces:
            if piece:
                texts.append(piece)
                sys.stdout.write(_harmless(piece) if screen else piece)
                sys.stdout.flush()
    finally:
        with suppress(BrokenPipeError):
            print(flush=True)
    return "".join(texts)


def _harmless(text: str) -> str:
    """Text without control characters: a model's output must not steer a terminal."""
    return "".join(
        letter for letter in text if letter in "\n\t" or letter.isprintable() or ord(letter) > 0x9F
    )


def _lines(*, typed: bool) -> Iterator[str]:
    """The input's lines, without blank ones. At a terminal, with a prompt; Ctrl-C and Ctrl-D end it."""
    if not typed:
        yield from (line.rstrip("\n") for line in sys.stdin if line.strip())
        return
    with suppress(ImportError):
        import readline  # noqa: F401, PLC0415 - gives `input` a history and editing
    while True:
        try:
            line = input("> ")
        except (EOFError, KeyboardInterrupt):
            print()
            return
        if line.strip():
            yield line
