"""What a model family is: data, and one function that writes its prompts."""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from onward.core.failure import Failure, excerpt, invalid
from onward.rendering.families.conversation import Conversation
from onward.rendering.parsing.grammar import Grammar
from onward.rendering.prompt import PromptBuilder
from onward.rendering.renderer import ImageMarks

Render: TypeAlias = Callable[[Conversation, PromptBuilder], None]

INSTRUCT: Final = "instruct"
HYBRID: Final = "hybrid"
REASONING: Final = "reasoning"


class Efforts(msgspec.Struct, frozen=True, kw_only=True):
    """Which values of `reasoning_effort` a family takes, and what each means to its `render`."""

    values: Mapping[str | bool, Any] = {}
    default: Any = None
    numbers: tuple[float, float] | None = None
    """Least and greatest number, where numbers are taken; a number means itself."""
    switch: str | None = None
    """The option of `chat_template_kwargs` that says true or false instead."""

    def read(self, effort: str | float | bool | None, options: Mapping[str, Any]) -> Any:
        """What a request wants. Raises `Failure` that lists the accepted values (TH-3)."""
        if effort is None:
            wanted = options.get(self.switch) if self.switch else None
            if isinstance(wanted, bool) and wanted in self.values:
                return self.values[wanted]
            return self.default
        if not self.takes(effort):
            raise self._refused(effort)
        return self.values[effort] if isinstance(effort, bool | str) else effort

    def takes(self, effort: str | float | bool) -> bool:
        """Whether a value is one of those."""
        if isinstance(effort, bool | str):
            return effort in self.values
        return self.numbers is not None and self.numbers[0] <= effort <= self.numbers[1]

    def _refused(self, effort: str | float | bool) -> Failure:
        shown = f"'{excerpt(effort, 40)}'" if isinstance(effort, str) else str(effort).lower()
        taken = [f"'{value}'" if isinstance(value, str) else str(value).lower() for value in self.values]
        if self.numbers is not None:
            taken.append(f"a number from {self.numbers[0]} to {self.numbers[1]}")
        if not taken:
            return invalid(
                "reasoning_effort",
                f"'reasoning_effort' is {shown}; this model has no control of its reasoning and takes no "
                "value: leave it out.",
            )
        return invalid(
            "reasoning_effort", f"'reasoning_effort' is {shown}; this model takes {', '.join(taken)}."
        )


NO_EFFORTS: Final = Efforts()


def on_or_off(*, default: bool = True, switch: str = "enable_thinking") -> Efforts:
    """The efforts of a hybrid model whose reasoning is on or off."""
    return Efforts(
        values={True: True, False: False, "none": False, "high": True}, default=default, switch=switch
    )


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """A chat format."""

    name: str
    """What a config calls it (`renderer = "qwen3"`)."""
    repos: tuple[str, ...]
    """Public repo IDs, as regular expressions that match the whole, case aside."""
    kind: str = INSTRUCT
    marks: tuple[str, ...]
    """Control tokens without which a vocabulary cannot be of this family."""
    template: tuple[str, ...] = ()
    """What a chat template holds, all of it, if it is of this family. (): never chosen by one."""
    template_lacks: tuple[str, ...] = ()
    """What it must not hold."""
    render: Render
    grammar: Grammar
    header: str
    """What stands in front of a reply in a prompt; "" where the model writes its own header."""
    stops: tuple[str, ...]
    """Tokens that end a reply."""
    goes_on: tuple[str, ...] = ()
    """Tokens that end a generation elsewhere, but not here."""
    efforts: Efforts = NO_EFFORTS
    tools: bool = False
    """Whether the format has tool calls."""
    developer: bool = False
    """Whether it has the role developer; such messages are system messages otherwise."""
    images: ImageMarks | None = None
    """What it writes around an image; None: its `render` takes no image parts."""
