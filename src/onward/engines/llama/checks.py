"""What the engine looks at in a request before it takes it on."""

from onward.core.failure import Failure, FailureKind, invalid
from onward.core.generate import GenerateRequest


def check(request: GenerateRequest, *, vocabulary: int) -> None:
    """Refuse what would break the library. Raises `Failure`."""
    if not request.prompt and not request.images:
        raise invalid("prompt", "'prompt' holds no tokens.")
    for param, ids in (
        ("prompt", request.prompt),
        ("logit_bias", request.sampling.logit_bias),
        ("stop_token_ids", request.stop_token_ids),
    ):
        if ids and (min(ids) < 0 or max(ids) >= vocabulary):
            wrong = next(token for token in ids if not 0 <= token < vocabulary)
            known = f"this model has IDs from 0 to {vocabulary - 1}"
            raise invalid(param, f"'{param}' holds token ID {wrong}; {known}.")


def check_length(length: int, context_length: int) -> None:
    """Refuse a prompt that the context has no room for. Raises `Failure`."""
    if length > context_length:
        raise Failure(
            FailureKind.CONTEXT_LENGTH_EXCEEDED,
            f"The prompt has {length} tokens; the context of this model is {context_length} tokens.",
            param="prompt",
        )
