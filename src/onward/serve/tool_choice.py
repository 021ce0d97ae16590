"""`tool_choice` and `parallel_tool_calls`: what can be known before a reply, and after it (TH-6)."""

from onward.core.delta import ChoiceDelta, FinishReason, settled
from onward.core.failure import Failure, FailureKind, excerpt, invalid
from onward.core.request import ChatRequest
from onward.serve.model import ServedModel


def check_request(served: ServedModel, request: ChatRequest) -> None:
    """Refuse a choice that the model's format cannot follow. Raises `Failure`."""
    choice = request.tool_choice
    if choice is None or choice in ("none", "auto") or served.renderer is None or served.renderer.tools:
        return
    raise invalid(
        "tool_choice",
        f"'tool_choice' asks for a call, and '{served.model.id}' has no tool-call support. Use a model that "
        "has, or leave 'tool_choice' out.",
    )


class ToolCheck:
    """Holds the replies of a request against what it asked for.

    `see` takes every delta, and raises `Failure` (TOOL_CHOICE_BROKEN) once a reply is over that
    breaks it. A malformed reply has no calls, whatever a stream has shown of it.
    """

    def __init__(self, request: ChatRequest) -> None:
        choice = request.tool_choice
        self._none = choice == "none"
        self._required = choice == "required"
        self._named: str | None = choice["function"]["name"] if isinstance(choice, dict) else None
        self._one = not request.parallel_tool_calls
        self._names: dict[int, list[str]] = {}

    @property
    def needed(self) -> bool:
        """Whether there is anything to check."""
        return self._none or self._required or self._named is not None or self._one

    def see(self, delta: ChoiceDelta) -> None:
        """Take the next delta of a choice."""
        names = self._names.setdefault(delta.index, [])
        names.extend(call.name for call in delta.tool_calls if call.name is not None)
        if delta.finish is None or delta.finish is FinishReason.CONTENT_FILTER:
            return
        if settled(delta) is not delta:
            names = []
        broken = self._broken(names)
        if broken is not None:
            raise Failure(
                FailureKind.TOOL_CHOICE_BROKEN,
                f"{broken} A model cannot be forced to follow this setting: send the request again, or leave "
                "it at its default.",
                param="parallel_tool_calls" if broken.startswith("One call") else "tool_choice",
            )

    def _broken(self, names: list[str]) -> str | None:
        if self._none and names:
            return "'tool_choice' is 'none', and the reply calls a function."
        if self._required and not names:
            return "'tool_choice' asks for a call, and the reply makes none."
        if self._named is not None and (not names or any(name != self._named for name in names)):
            called = f"calls '{excerpt(names[0], 60)}'" if names else "calls no function"
            return f"'tool_choice' names the function '{self._named}', and the reply {called}."
        if self._one and len(names) > 1:
            return f"One call at most is asked for, and the reply makes {len(names)}."
        return None
