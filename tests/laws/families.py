"""Every family over small tokenizers: one that has its marks as tokens, one that spells them."""

from functools import cache

from onward.rendering.families import registry
from onward.rendering.families.family import Family
from onward.rendering.families.native import NativeRenderer
from onward.rendering.tokenizer import Tokenizer, from_gguf
from tests.unit.rendering.tiny import byte_level, byte_level_metadata


def marks_of(family: Family) -> list[str]:
    """Every mark of a family's grammar that looks like one, its stops, its needs."""
    grammar = family.grammar
    found = {
        mark for state in grammar.states.values() for mark in (*state.edges, *state.keeps) if len(mark) > 1
    }
    return sorted(found | set(family.stops) | set(family.marks) | grammar.plain | grammar.foreign)


def with_marks(family: Family) -> Tokenizer:
    """A small vocabulary that has the family's control tokens."""
    grammar = family.grammar
    metadata = byte_level_metadata()
    tokens, kinds = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    own = set(family.marks) | set(family.stops) | grammar.plain | grammar.foreign
    for mark in marks_of(family):
        # What no vocabulary has as one token is spelled: longer marks of the text level.
        if mark not in tokens and (mark in own or not any(other in mark for other in own)):
            tokens.append(mark)
            kinds.append(3)
    return from_gguf(metadata)


@cache
def renderers(name: str) -> tuple[NativeRenderer, NativeRenderer]:
    """A family's renderer over both."""
    family = registry.BY_NAME[name]
    return NativeRenderer(family, with_marks(family)), NativeRenderer(family, byte_level())
