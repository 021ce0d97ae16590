"""Token counts of a request."""

import msgspec


class Usage(msgspec.Struct):
    """What a request used so far. Each prompt counts once, however many choices it has."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    """Everything sampled, seen or not: stop tokens, cut text and losing candidates too."""
    cached_tokens: int = 0
    input_images: int = 0
    """Images of the request, where its API tells of them; the ledger does not keep them."""

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens
