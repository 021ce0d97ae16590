"""The laws that every family obeys; each family's tests call `check_family`."""

import random
from collections.abc import Mapping

from onward.core.delta import ChoiceDelta, FinishReason, fold, settled
from onward.core.request import ChatRequest, Message
from onward.rendering.families.native import NativeRenderer
from tests.unit.rendering.families import oracle

HISTORIES = {
    "text": [oracle.user("Q"), oracle.assistant("Hello, naïve 日本 😀!")],
    "empty": [oracle.user("Q"), oracle.assistant("")],
    "reasoning": [oracle.user("Q"), oracle.assistant("So.", reasoning="I think.\n\nHm 😀")],
    "call": [oracle.user("Q"), oracle.assistant("", oracle.PARIS)],
    "calls": [oracle.user("Q"), oracle.assistant("I look.", oracle.PARIS, oracle.OSLO, oracle.NOW)],
    "all": [oracle.user("Q"), oracle.assistant("I look.", oracle.OSLO, oracle.NOW, reasoning="Both.")],
}
"""Each ends with a reply as a model could have written it."""


def check_family(
    renderer: NativeRenderer,
    *,
    skip: tuple[str, ...] = (),
    random_ids: int = 3_000,
    histories: Mapping[str, list[Message]] = HISTORIES,
) -> None:
    """Render then parse is the identity; any cut gives the same; random tokens lose nothing.

    `skip`: histories whose last reply the official template does not write whole (give the reason
    where it is passed). `histories`: others instead.
    """
    check_identity(renderer, skip, histories)
    check_random_ids(renderer, random_ids)


def check_identity(
    renderer: NativeRenderer,
    skip: tuple[str, ...] = (),
    histories: Mapping[str, list[Message]] = HISTORIES,
) -> None:
    """What the family writes for a reply in the history, it reads as that reply."""
    family = renderer.family
    for title, messages in histories.items():
        said = messages[-1]
        if title in skip or (said.tool_calls and not family.tools):
            continue
        if said.reasoning and family.kind == "instruct":
            continue
        request = ChatRequest(model="m", messages=messages, tools=oracle.TOOLS, add_generation_prompt=False)
        prompt, _ = renderer.build(request).ids()
        _, reply = renderer.build(request).ids()
        assert prompt[len(prompt) - len(reply) :] == reply
        if renderer._stops.isdisjoint(reply):
            # The next role ends it: the format has no end of its own.
            reply = [*reply, min(renderer._stops)]
        whole = oracle.parsed(renderer, reply, tools=oracle.TOOLS)
        assert whole.plain is None, (title, renderer._tokenizer.decode(reply))
        expected = [(call.name, _loaded(call.arguments)) for call in said.tool_calls]
        found = [(call.name, _loaded(call.arguments)) for call in whole.tool_calls]
        assert found == expected, title
        assert (whole.text, whole.reasoning) == (said.content or "", said.reasoning or ""), title
        assert whole.finish is (FinishReason.TOOL_CALLS if expected else FinishReason.STOP)
        check_cuts(renderer, reply)
        for size in range(len(reply)):
            check_cuts(renderer, reply[:size], seeds=1)


def check_cuts(renderer: NativeRenderer, ids: list[int], seeds: int = 4, **options) -> None:
    """However the tokens come in steps, the joined deltas are the same, and nothing is lost."""
    whole = oracle.deltas(renderer, ids, cuts=[len(ids)], tools=oracle.TOOLS, **options)
    expected = _plain(fold(whole)[0])
    for seed in range(seeds):
        rng = random.Random(seed)
        cuts = [rng.randint(0, 3) for _ in range(2 * len(ids))]
        pieces = oracle.deltas(renderer, ids, cuts=cuts, tools=oracle.TOOLS, **options)
        assert _plain(fold(pieces)[0]) == expected
        assert all(piece.finish is None and piece.plain is None for piece in pieces[:-1])
    calls = [call for piece in whole for call in piece.tool_calls]
    assert [call.index for call in calls] == list(range(len(calls)))
    assert len({call.id for call in calls}) == len(calls)


def check_random_ids(renderer: NativeRenderer, count: int) -> None:
    """Random tokens, many of them marks, never raise; a malformed reply is its whole text."""
    tokenizer = renderer._tokenizer
    rng = random.Random(7)
    marks = sorted(tokenizer.marks.ids.values())
    # Sorted, so that every process tries the same: a set of strings has another order in each.
    family = [
        *sorted(renderer._table.marks),
        *tokenizer.encode(' {"name": "f", "arguments": {}}\n', control=False),
    ]
    done = 0
    while done < count:
        size = rng.randint(0, 40)
        done += size + 1
        ids = [
            rng.choice(family)
            if rng.random() < 0.5
            else rng.choice(marks)
            if rng.random() < 0.1
            else rng.randrange(-2, tokenizer.vocab_size + 2)
            for _ in range(size)
        ]
        check_cuts(renderer, ids, seeds=1)
        pieces = oracle.deltas(renderer, ids)
        choice = fold(pieces)[0]
        ended = next((at for at, token in enumerate(ids) if token in renderer._stops), len(ids))
        text = b"".join(tokenizer.token_bytes(token) for token in ids[:ended]).decode("utf-8", "replace")
        if choice.plain is not None:
            assert settled(choice).text == text
            # From the error on it is all there, word for word: as reasoning where a thought never closed.
            last = next((given for one in reversed(pieces) if (given := one.text or one.reasoning)), "")
            assert not last or text.endswith(last[-1:])


def _plain(choice: ChoiceDelta):
    return (*oracle.parts(choice), choice.finish, choice.plain)


def _loaded(arguments: str):
    import json

    return json.loads(arguments)
