"""Sequences of the context, what prefix each of them holds, and who may use it."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from onward.core.generate import GenerateRequest, ScoredToken
from onward.engines.llama.binding import Logits
from onward.engines.llama.pictures import Picture
from onward.engines.llama.sampling import Sampler

CHUNK = 64
"""Prefill is cut at the multiples of this position, whatever the prompt and whatever is cached.

The cut moves logits, so it must depend on nothing else. With fewer tokens in a call llama.cpp's
tiled attention is not used, with more a step takes longer than running requests should wait.
"""

Owner = tuple[str | None, str | None]
"""Adapter and cache scope: keys are of use to the same owner alone."""


def reusable(length: int) -> int:
    """How much of a prompt can come out of whole chunks; its last token is always computed."""
    return (length - 1) // CHUNK * CHUNK


def shared_chunks(left: Sequence[int], right: Sequence[int]) -> int:
    """Tokens in the whole chunks that both begin with."""
    limit = min(len(left), len(right)) // CHUNK * CHUNK
    for start in range(0, limit, CHUNK):
        if left[start : start + CHUNK] != right[start : start + CHUNK]:
            return start
    return limit


@dataclass(eq=False, slots=True)
class Run:
    """A request on its way through the engine."""

    key: tuple[int, int]
    """Connection and the connection's own number."""
    order: int
    """How many were submitted before it."""
    request: GenerateRequest
    sampler: Sampler
    started_at: float
    """Of the monotonic clock, in seconds."""
    scored: list[ScoredToken] | None
    """The prompt's tokens as far as they are scored, if that was asked for."""
    slot: "Slot | None" = None
    position: int = 0
    """Prompt tokens whose keys the slot holds."""
    cached: int = 0
    """Prompt tokens that were not computed for this request."""
    generated: int = 0
    last_token: int = -1
    decoding: bool = False
    pictures: deque[Picture] = field(default_factory=deque)
    """Images that the slot does not hold yet."""
    shift: int = 0
    """By how much positions in the context are ahead of those in the prompt, because of images."""
    image_tokens: int = 0
    """Of all its images."""

    @property
    def length(self) -> int:
        """Tokens of the prompt, those of images included."""
        return len(self.request.prompt) + self.image_tokens

    @property
    def plain(self) -> int:
        """Tokens of the prompt in front of its first image: all, if it has none."""
        images = self.request.images
        return images[0].position if images else len(self.request.prompt)

    @property
    def owner(self) -> Owner:
        return self.request.adapter, self.request.cache_scope

    def shares(self, prefix: Sequence[int]) -> int:
        """Tokens of its prompt that it could take from whole chunks of `prefix`."""
        limit = min(reusable(len(self.request.prompt)), self.plain // CHUNK * CHUNK)
        return max(0, min(shared_chunks(prefix, self.request.prompt), limit))


@dataclass(eq=False, slots=True)
class Slot:
    """One sequence. Its prefix outlives the run that computed it."""

    index: int
    owner: Owner = (None, None)
    prefix: list[int] = field(default_factory=list)
    """Tokens of the whole chunks that its keys begin with: never decoded ones, never a part chunk."""
    prompt: list[int] | None = None
    """The whole prompt that its keys begin with, part chunk included, while `logits` are known."""
    logits: Logits | None = None
    """What the last token of `prompt` predicts."""
    run: Run | None = None
    used: int = 0
    """The tick of its last use; the least recent is overwritten first."""

    def holds(self, run: Run) -> int:
        """How much of a run's prompt is here to reuse: all of an equal prompt, else whole chunks."""
        if self.owner != run.owner:
            return 0
        prompt = run.request.prompt
        if self.prompt == prompt and not run.request.images:
            return len(prompt)
        return run.shares(self.prefix)

    def keep(self, length: int) -> None:
        """Know of no more than the first `length` tokens."""
        self.prefix = self.prefix[:length]
        if self.prompt is not None and len(self.prompt) > length:
            self.prompt = self.logits = None


def best_match(slots: Iterable[Slot], run: Run) -> tuple[Slot | None, int]:
    """The slot that holds the most of the run's prompt, and how much; the first of equals."""
    best: Slot | None = None
    length = 0
    for slot in slots:
        matched = slot.holds(run)
        if matched > length:
            best, length = slot, matched
    return best, length
