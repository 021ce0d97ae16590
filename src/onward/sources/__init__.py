"""Where models come from: local files, hubs, wheels. Every source ends as a path to a GGUF file."""

from onward.sources.error import SourceError
from onward.sources.fetch import fetch

__all__ = ["SourceError", "fetch"]
