"""From a row of logits to a token, and to log probabilities.

The order is vLLM's: banned stop tokens and bias, penalties, temperature, min_p, top_k, top_p, draw.
Log probabilities are of the row as the model gave it, before all of that. Ties go to the lowest ID.
Work that a request did not ask for is not done, and the whole vocabulary is never sorted for it.
"""

import hashlib
import os

import numpy as np
import numpy.typing as npt

from onward.core.generate import Alternative, GenerateRequest, ScoredToken

Row = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]

GREEDY_BELOW = 1e-5
"""A temperature under this is greedy, as in vLLM: dividing by it would only overflow."""
HOTTEST = 1e30
"""Higher temperatures count as this one, as uniform as any: infinity would make NaN of banned tokens."""

_BLOCK = 256


def top_ids(values: Row, count: int) -> Ids:
    """The IDs of the `count` greatest values, best first, ties by the lower ID."""
    size = values.shape[0]
    if count >= size // 8:
        return np.argsort(-values, kind="stable")[:count]
    # The count-th greatest of the maxima of disjoint groups is a lower bound of the count-th
    # greatest value, so only what reaches it needs sorting.
    columns = max(4 * count, 512)
    if columns * 2 > size:
        columns = count
    rows = size // columns
    whole, rest = values[: rows * columns], values[rows * columns :]
    maxima = np.concatenate((whole.reshape(rows, columns).max(axis=0), rest))
    bound = np.partition(maxima, maxima.shape[0] - count)[maxima.shape[0] - count]
    candidates = np.flatnonzero(values >= bound)
    order = np.lexsort((candidates, -values[candidates]))
    return candidates[order[:count]]


class Softmax:
    """The log-softmax of a row, computed as far as needed."""

    def __init__(self, row: Row) -> None:
        self.row = row
        self.top = float(row.max())
        self.weights: Row = np.exp(row - np.float32(self.top))
        self._log_total = float(np.log(np.sum(self.weights, dtype=np.float64)))

    def logprob(self, token: int) -> float:
        """Natural log of the token's probability; never above 0."""
        return float(self.row[token]) - self.top - self._log_total

    def score(self, token: int, alternatives: int) -> ScoredToken:
        """The token with its own log probability and those of the likeliest."""
        best: tuple[Alternative, ...] = ()
        if alternatives > 0:
            best = tuple((int(other), self.logprob(int(other))) for other in top_ids(self.row, alternatives))
        return ScoredToken(token, self.logprob(token), best)


class Sampler:
    """Chooses the tokens of one request.

    The draw of token `i` depends on the seed and on `i` alone, so nothing that the engine does for
    others, and no way of cutting the work into steps, can change it.
    """

    def __init__(self, request: GenerateRequest) -> None:
        sampling = request.sampling
        self._sampling = sampling
        self._alternatives = request.alternatives
        self._greedy = sampling.temperature < GREEDY_BELOW
        self._seed = (
            os.urandom(8) if sampling.seed is None else sampling.seed.to_bytes(8, "little", signed=True)
        )
        self._index = 0
        self._min_tokens = request.min_tokens
        self._stops = np.array(sorted(set(request.stop_token_ids)), dtype=np.int64)
        self._bias_ids = np.array(list(sampling.logit_bias), dtype=np.int64)
        self._bias = np.array(list(sampling.logit_bias.values()), dtype=np.float32)
        self._penal = sampling.presence_penalty != 0 or sampling.frequency_penalty != 0
        self._counts: dict[int, int] = {}
        self._seen: set[int] = set(request.prompt) if sampling.repetition_penalty != 1 else set()

    def sample(self, row: Row) -> ScoredToken:
        """The next token."""
        softmax = Softmax(row) if self._alternatives is not None else None
        adjusted = self._adjust(row)
        if self._greedy:
            token = int(adjusted.argmax())
        else:
            token = self._draw(adjusted, softmax if adjusted is row else None)
        self._index += 1
        if self._penal:
            self._counts[token] = self._counts.get(token, 0) + 1
        if self._sampling.repetition_penalty != 1:
            self._seen.add(token)
        if softmax is None:
            return ScoredToken(token)
        return softmax.score(token, self._alternatives or 0)

    def _adjust(self, row: Row) -> Row:
        sampling = self._sampling
        ban = self._index < self._min_tokens and len(self._stops) > 0
        repeat = sampling.repetition_penalty != 1
        if not (ban or repeat or len(self._bias_ids) or (self._penal and self._counts)):
            return row
        adjusted = row.copy()
        if len(self._bias_ids):
            adjusted[self._bias_ids] += self._bias
        if ban:
            adjusted[self._stops] = -np.inf
        if repeat:
            seen = np.fromiter(self._seen, dtype=np.int64, count=len(self._seen))
            values = adjusted[seen]
            factor = np.float32(sampling.repetition_penalty)
            adjusted[seen] = np.where(values > 0, values / factor, values * factor)
        if self._counts:
            ids = np.fromiter(self._counts.keys(), dtype=np.int64, count=len(self._counts))
            counts = np.fromiter(self._counts.values(), dtype=np.float32, count=len(self._counts))
            adjusted[ids] -= np.float32(sampling.frequency_penalty) * counts
            adjusted[ids] -= np.float32(sampling.presence_penalty)
        return adjusted

    def _uniform(self) -> float:
        digest = hashlib.blake2b(self._seed + self._index.to_bytes(8, "little"), digest_size=8).digest()
        return (int.from_bytes(digest, "little") >> 11) * 2.0**-53

    def _draw(self, adjusted: Row, softmax: Softmax | None) -> int:
        sampling = self._sampling
        if softmax is not None and sampling.temperature == 1:
            weights = softmax.weights
        else:
            with np.errstate(over="ignore"):
                weights = np.exp((adjusted - adjusted.max()) / np.float32(min(sampling.temperature, HOTTEST)))
        if sampling.top_k <= 0 and sampling.top_p >= 1 and sampling.min_p <= 0:
            return _pick_block(weights, self._uniform())
        ids = _keep(weights, top_k=sampling.top_k, top_p=sampling.top_p, min_p=sampling.min_p)
        return int(ids[_pick(weights[ids], self._uniform())])


def _keep(weights: Row, *, top_k: int, top_p: float, min_p: float) -> Ids:
    """IDs that pass min_p, top_k and top_p, best first. The greatest weight is 1 and always passes."""
    kept = int(np.count_nonzero(weights >= np.float32(min_p))) if min_p > 0 else weights.shape[0]
    limit = min(kept, top_k) if top_k > 0 else kept
    if top_p >= 1:
        return top_ids(weights, limit)
    if limit == weights.shape[0]:
        total = float(weights.sum(dtype=np.float64))
    elif top_k > 0 and limit == top_k:
        ids = top_ids(weights, limit)
        return ids[: _nucleus(weights[ids], top_p, float(weights[ids].sum(dtype=np.float64)))]
    else:
        total = float(weights[weights >= np.float32(min_p)].sum(dtype=np.float64))
    size = min(limit, 128)
    while True:
        ids = top_ids(weights, size)
        count = _nucleus(weights[ids], top_p, total)
        if count < size or size == limit:
            return ids[:count]
        size = min(limit, size * 8)


def _nucleus(descending: Row, top_p: float, total: float) -> int:
    """How many of the weights it takes until their sum reaches `top_p` of the total; at least one."""
    before = np.cumsum(descending, dtype=np.float64) - descending
    return max(1, int(np.count_nonzero(before < top_p * total)))


def _pick(weights: Row, uniform: float) -> int:
    """The index whose share of the cumulated weights holds `uniform`."""
    sums = np.cumsum(weights, dtype=np.float64)
    index = int(np.searchsorted(sums, uniform * sums[-1], side="right"))
    return min(index, _last_positive(weights))


def _pick_block(weights: Row, uniform: float) -> int:
    """As `_pick`, over the whole vocabulary: first a block by its sum, then inside it."""
    whole = weights.shape[0] // _BLOCK * _BLOCK
    sums = weights[:whole].reshape(-1, _BLOCK).sum(axis=1, dtype=np.float64)
    sums = np.append(sums, weights[whole:].sum(dtype=np.float64))
    ends = np.cumsum(sums)
    target = uniform * ends[-1]
    block = int(np.searchsorted(ends, target, side="right"))
    block = min(block, _last_positive(sums))
    start = block * _BLOCK
    inside = weights[start : start + _BLOCK]
    share = np.cumsum(inside, dtype=np.float64)
    index = int(np.searchsorted(share, target - (ends[block] - sums[block]), side="right"))
    return start + min(index, _last_positive(inside))


def _last_positive(weights: npt.NDArray[np.floating]) -> int:
    """Rounding may carry a draw past the end: the last entry that can be drawn at all."""
    return int(np.flatnonzero(weights)[-1])
