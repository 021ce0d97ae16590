"""Model references, by the grammar of a dialect (TC-1, P-5)."""

import re
from functools import cache

from onward.core.reference import ModelReference
from onward.dialects.schema import Dialect


def parse(dialect: Dialect, text: str) -> ModelReference:
    """`text` taken apart; what no form of the dialect matches is a plain ID."""
    for pattern in _patterns(dialect):
        match = pattern.fullmatch(text)
        if match:
            return ModelReference(text, **{"base": None, **match.groupdict()})
    return ModelReference(text, text)


@cache
def _patterns(dialect: Dialect) -> list[re.Pattern[str]]:
    return [re.compile(form.pattern) for form in dialect.references]
