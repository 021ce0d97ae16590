"""``docs/dialects.md``, out of the tables: ``python -m onward.dialects.document > docs/dialects.md``."""

import sys
from collections.abc import Iterable

import msgspec

from onward.dialects import DIALECTS
from onward.dialects.describe import words
from onward.dialects.schema import Action, Dialect, FailureShape, Field, Rule, Surface, UsageWhen

_INTRODUCTION = """\
# Dialects

An Onward server speaks several APIs, each at a mount of its own. A dialect is data: this page is
made from it by `python -m onward.dialects.document`.

What holds in all of them:

- `null` is absent, for every optional field. Fields that are not listed are ignored.
- Numbers are strict: a boolean is no number, `5.0` and `"5"` are no integers.
- `Content-Type: application/json` is required. A body nests at most 64 levels.
- A wrong field is a 400 that names it in `param`; everything is checked before the first byte.
- Streamed and unstreamed answers are the same: the pieces joined are the whole.
"""


def document(dialects: Iterable[Dialect]) -> str:
    """The whole page, as Markdown."""
    return _INTRODUCTION + "".join(_dialect(dialect) for dialect in dialects)


def _dialect(dialect: Dialect) -> str:
    parts = [f"\n## `{dialect.name}`\n\n{dialect.about}\n"]
    parts += [_surface(surface) for surface in dialect.surfaces.values()]
    parts += [_answers(dialect), _providers(dialect), _references(dialect), _errors(dialect)]
    if dialect.notes:
        parts.append("\n### Choices\n\n" + "".join(f"- {note}\n" for note in dialect.notes))
    return "".join(parts)


def _surface(surface: Surface) -> str:
    root = " It also stands at the root of the server." if surface.at_root else ""
    text = f"\n### `{surface.method} {{mount}}{surface.path}`\n\n{surface.about}{root}\n"
    if surface.fields:
        rows = [_field(field) for field in surface.fields]
        text += "\n" + _table(("field", "value", "default", "meaning", "from"), rows)
    rules = [rule for rule in surface.rules if isinstance(rule, Rule)]
    if rules:
        text += "\nRefused together:\n\n" + "".join(f"- `{rule.param}`: {rule.message}\n" for rule in rules)
    if surface.notes:
        text += "\n" + "".join(f"- {note}\n" for note in surface.notes)
    return text + (_shape(surface.failures) if surface.failures is not None else "")


def _shape(shape: FailureShape) -> str:
    """How a surface writes failures in a shape of its own."""
    rows = [(str(status), f"`{name}`") for status, name in shape.types.items()]
    rows += [("any other 4xx", f"`{shape.other_4xx}`"), ("any other 5xx", f"`{shape.other_5xx}`")]
    return (
        '\nFailures are `{"type": "error", "error": {"type": …, "message": …}, "request_id": …}` here, in a '
        "stream as the event `error`; the message names the field. Statuses are those below, types:\n\n"
        + _table(("status", "type"), rows)
    )


def _field(field: Field) -> tuple[str, ...]:
    names = ", ".join(f"`{name}`" for name in (field.name, *field.aliases))
    if field.action is not Action.ACCEPT:
        return names, f"{field.action}ed" if field.action is Action.REJECT else "ignored", "", field.note, ""
    default = "required" if field.required else ""
    if field.default not in (None, [], {}, ""):
        default = f"`{msgspec.json.encode(field.default).decode()}`"
    value = f"{words(field.value)}; else as if absent" if field.lenient else words(field.value)
    return names, value, default, field.note, field.source


def _answers(dialect: Dialect) -> str:
    stream, response = dialect.stream, dialect.response
    usage = (
        "always" if stream.usage is UsageWhen.ALWAYS else "when `stream_options.include_usage` asks for it"
    )
    comment = stream.keep_alive.decode().strip()
    lines = [
        f"Keys are looked for in {' and '.join(f'`{auth.value}`' for auth in dialect.auth)}.",
        f"A chat message always has {_listed(response.message_keys)}; null where there is nothing.",
        f"A stream ends with a usage event (empty `choices`) {usage}, then `data: [DONE]`.",
        f'A stream that fails ends with the event `{{"error": …}}`, which has {_listed(stream.error_keys)}.',
        f"After {stream.keep_alive_s} s of silence a stream gets the line `{comment}`.",
    ]
    if stream.delta_keys:
        lines.append(f"Every chat delta has {_listed(stream.delta_keys)}, null when nothing is new.")
    if response.media_usage:
        lines.append("`usage` of a request with images has `media.input_images`, their number.")
    lines += [
        f"Header `{header.name}`: the {header.value}{'' if header.on_failures else ', unless it failed'}."
        for header in dialect.headers
    ]
    return "\n### Answers\n\n" + "".join(f"- {line}\n" for line in lines)


def _providers(dialect: Dialect) -> str:
    """What goes on to a provider, how, and what its failures lead to."""
    title = "\n### Models of providers\n\n"
    if not dialect.passed:
        return title + "None: only models that are served here answer.\n"
    passing = dialect.passing
    own_limit = any(surface.constants.get("model_max_tokens") for surface in dialect.passed.values())
    assumed = (
        "the model's `default_max_tokens`, else `assumed_max_tokens`" if own_limit else "`assumed_max_tokens`"
    )
    lines = [
        (
            "A body goes on byte for byte, save the value of `model`, a limit on output, and "
            "`stream_options.include_usage`, which is set in every stream."
        ),
        (
            f"A request without a limit on output is held for {assumed}, and "
            f"{'that is sent on as its limit' if passing.cap_unset else 'sent on without one'}."
        ),
        (
            "A limit that the balance does not carry "
            f"{'is lowered to what it does' if passing.lowers_limit else 'is refused'}."
        ),
    ]
    final = ", ".join(f"`{kind}`" for kind in sorted(passing.final))
    lines.append(
        "Any failure before the first piece of output moves on to the model's next deployment"
        + (f", but {final}." if final else ".")
    )
    if passing.joint_failure is not None:
        lines.append(f"When several deployments failed, the failure is `{passing.joint_failure}`.")
    if any(row.passes_status for row in dialect.errors.values()):
        lines.append("When a model has one provider, the status that it refused with is passed on.")
    if passing.choices_alone:
        lines.append(
            "Of its answers and events only `choices` pass, and no comments; `id`, `object`, `created`,"
            " `model` and `usage` are our own."
        )
    lines.append("A provider's own messages are never shown.")
    text = title + "".join(f"- {line}\n" for line in lines)
    for surface in dialect.passed.values():
        rows = [_field(field) for field in surface.fields]
        text += f"\nRead of a body for `{surface.path}`:\n\n"
        text += _table(("field", "value", "default", "meaning", "from"), rows)
    return text


def _references(dialect: Dialect) -> str:
    rows = [(f"`{form.example}`", form.note) for form in dialect.references]
    rows.append(("anything else", "A model, by its ID, an alias, or the ID of its public repository."))
    return "\n### Model references\n\n" + _table(("form", "meaning"), rows)


def _errors(dialect: Dialect) -> str:
    rows = [
        (
            f"`{kind}`",
            f"{row.status}, or the provider's" if row.passes_status else str(row.status),
            f"`{row.type}`",
            f"`{row.code}`",
        )
        for kind, row in dialect.errors.items()
    ]
    return "\n### Failures\n\n" + _table(("failure", "status", "type", "code"), rows)


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def _listed(keys: tuple[str, ...]) -> str:
    return ", ".join(f"`{key}`" for key in keys)


if __name__ == "__main__":
    sys.stdout.write(document(DIALECTS.values()))
