"""The content filter of a model of the config."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from onward.core.content_filter import ContentFilter
from onward.core.patterns import MOST_PATTERNS, PatternError, input_pattern, output_pattern

if TYPE_CHECKING:
    from onward.wiring import config as settings


def filter_faults(content: "settings.ContentFilter", path: str) -> Iterator[str]:
    """Faults of its patterns, each of which is compiled here."""
    if not content.block_input and not content.block_output:
        yield f"{path}: has no pattern; write block_input or block_output, or leave it out"
    for name, patterns, compiled in (
        ("block_input", content.block_input, input_pattern),
        ("block_output", content.block_output, output_pattern),
    ):
        if len(patterns) > MOST_PATTERNS:
            yield f"{path}.{name}: has {len(patterns)} patterns; at most {MOST_PATTERNS} are taken"
            continue
        for n, pattern in enumerate(patterns):
            try:
                compiled(name, pattern)
            except PatternError as error:
                yield f"{path}.{name}[{n}]: {error}"


def content_filter(content: "settings.ContentFilter | None") -> ContentFilter | None:
    """What a checked one does; None: there is none."""
    return None if content is None else ContentFilter.of(content.block_input, content.block_output)
