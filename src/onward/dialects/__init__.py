"""The APIs that we speak, as data, and the one interpreter that reads it."""

from typing import Final

from onward.dialects.openai import OPENAI
from onward.dialects.prentis import PRENTIS
from onward.dialects.schema import Dialect
from onward.dialects.tinker import TINKER
from onward.dialects.tokens import TOKENS

DIALECTS: Final[dict[str, Dialect]] = {dialect.name: dialect for dialect in (OPENAI, TINKER, TOKENS, PRENTIS)}
"""Every dialect by its name in the config."""
