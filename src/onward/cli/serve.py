"""`onward serve`."""

import argparse
import signal
import sys
from typing import TYPE_CHECKING, Any

from onward.cli.error import CommandError

if TYPE_CHECKING:
    from onward.wiring.processes import Ready


def serve(chosen: argparse.Namespace) -> None:
    """Serve models until a signal ends it. Once ready, print a line to paste into a client's shell.

    A signal that comes before ends it as well, and nothing is wrong then either: what is imported
    or downloaded may take long. What a download has brought so far is kept.
    """
    before = [(number, signal.signal(number, _interrupt)) for number in (signal.SIGTERM, signal.SIGINT)]
    try:
        _serve(chosen)
    except KeyboardInterrupt:
        return
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


def _serve(chosen: argparse.Namespace) -> None:
    from onward.wiring import config  # noqa: PLC0415 - once signals are minded

    overrides = config.Overrides(
        host=chosen.host,
        port=chosen.port,
        workers=chosen.workers,
        model=chosen.model,
        log_format=chosen.log_format,
        no_auth=chosen.no_auth,
    )
    try:
        loaded = config.load(chosen.config, overrides)
    except config.ConfigError as error:
        *more, last = [_said(fault, chosen) for fault in error.faults]
        for fault in more:
            print(f"onward: {fault}", file=sys.stderr)
        raise CommandError(last) from None
    from onward.wiring import processes  # noqa: PLC0415 - after the config is known to be good

    try:
        processes.serve(loaded, processes.Source(chosen.config, overrides), _announce)
    except processes.ServeError as error:
        raise CommandError(str(error)) from None


def _announce(ready: "Ready") -> None:
    key = "YOUR-KEY" if ready.needs_key else "none-needed"
    settings = f"OPENAI_BASE_URL={ready.base_url} OPENAI_API_KEY={key}"
    print(f"export {settings}  # model: {ready.model}", flush=True)


def _said(fault: str, chosen: argparse.Namespace) -> str:
    """A fault of the config, by the option where an option set what is wrong."""
    place, colon, why = fault.partition(": ")
    if chosen.model is not None and place.startswith("models[0]"):
        place = "--model"
    for name in ("host", "port", "workers"):
        if getattr(chosen, name) is not None and place == f"server.{name}":
            place = f"--{name}"
    return place + colon + why
