"""The APIs that we speak, as data, and the one interpreter that reads it."""

from typing import Final

from onward.dialects.openai import OPENAI
from onward.dialects.schema import Dialect

DIALECTS: Final[dict[str, Dialect]] = {OPENAI.name: OPENAI}
"""Every dialect by its name in the config."""
