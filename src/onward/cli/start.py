"""The first step of the `onward` command: it ends well whatever is interrupted, even an import."""

import sys


def main() -> int:
    """Run the command of this process; answers its exit code."""
    try:
        from onward.cli.main import main as run  # noqa: PLC0415 - see above

        return run()
    except KeyboardInterrupt:
        if sys.argv[1:2] == ["serve"]:
            return 0
        sys.stderr.write("onward: interrupted\n")
        return 1
