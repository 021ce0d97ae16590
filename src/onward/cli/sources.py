"""`onward pull`."""

import argparse
import sys

from onward.cli.error import CommandError
from onward.sources import SourceError, fetch


def pull(chosen: argparse.Namespace) -> None:
    """Fetch a model and print where it lies."""
    try:
        print(fetch(chosen.source, progress=sys.stderr.isatty()))
    except SourceError as error:
        raise CommandError(str(error)) from None
    except KeyboardInterrupt:
        raise CommandError("interrupted; run it again to go on where it stopped") from None
