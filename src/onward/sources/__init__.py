"""Where models come from: local files, hubs, wheels. Every source ends as a path to a GGUF file."""

from onward.sources.error import SourceError
from onward.sources.fetch import check_source, fetch

__all__ = ["SourceError", "check_source", "fetch"]
