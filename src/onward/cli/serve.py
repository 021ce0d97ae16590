"""`onward serve`."""

import argparse
import sys

from onward.cli.error import CommandError
from onward.wiring import config
from onward.wiring.config import ConfigError, Overrides


def serve(chosen: argparse.Namespace) -> None:
    """Serve models until a signal ends it. Once ready, print a line to paste into a client's shell."""
    overrides = Overrides(
        host=chosen.host,
        port=chosen.port,
        workers=chosen.workers,
        model=chosen.model,
        log_format=chosen.log_format,
        no_auth=chosen.no_auth,
    )
    try:
        loaded = config.load(chosen.config, overrides)
    except ConfigError as error:
        *more, last = error.faults
        for fault in more:
            print(f"onward: {fault}", file=sys.stderr)
        raise CommandError(last) from None
    from onward.wiring import processes  # noqa: PLC0415 - after the config is known to be good

    def announce(ready: processes.Ready) -> None:
        key = "YOUR-KEY" if ready.needs_key else "none-needed"
        settings = f"OPENAI_BASE_URL={ready.base_url} OPENAI_API_KEY={key}"
        print(f"export {settings}  # model: {ready.model}", flush=True)

    try:
        processes.serve(loaded, announce)
    except processes.ServeError as error:
        raise CommandError(str(error)) from None
