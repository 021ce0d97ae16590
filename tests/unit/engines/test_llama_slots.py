"""What may be reused: whole chunks, of the same owner, and never the last token."""

import pytest

from onward.core.generate import GenerateRequest
from onward.engines.llama.sampling import Sampler
from onward.engines.llama.slots import CHUNK, Run, Slot, best_match, reusable, shared_chunks


def run(prompt: list[int], **fields) -> Run:
    request = GenerateRequest(request_id="r", prompt=prompt, max_tokens=1, **fields)
    return Run(key=(1, 1), order=1, request=request, sampler=Sampler(request), started_at=0, scored=None)


@pytest.mark.parametrize(
    ("length", "expected"),
    [(1, 0), (CHUNK, 0), (CHUNK + 1, CHUNK), (2 * CHUNK, CHUNK), (2 * CHUNK + 1, 2 * CHUNK)],
)
def test_the_last_token_is_always_computed(length, expected):
    assert reusable(length) == expected
    prompt = list(range(length))
    assert run(prompt).shares(list(range(length // CHUNK * CHUNK))) == expected


@pytest.mark.parametrize("differs_at", [0, CHUNK - 1, CHUNK, 2 * CHUNK - 1, 3 * CHUNK])
def test_only_whole_chunks_are_shared(differs_at):
    left = list(range(4 * CHUNK))
    right = [*left[:differs_at], 99999, *left[differs_at + 1 :]]
    assert shared_chunks(left, right) == differs_at // CHUNK * CHUNK
    assert shared_chunks(left, left[: 2 * CHUNK + 5]) == 2 * CHUNK


def test_the_longest_prefix_of_the_same_owner_is_chosen():
    prompt = list(range(5 * CHUNK))
    slots = [
        Slot(0, (None, None), prompt[: 2 * CHUNK]),
        Slot(1, (None, "tenant"), prompt[: 4 * CHUNK]),
        Slot(2, ("adapter", None), prompt[: 4 * CHUNK]),
        Slot(3, (None, None), prompt[: 3 * CHUNK]),
        Slot(4),
    ]
    assert best_match(slots, run(prompt)) == (slots[3], 3 * CHUNK)
    assert best_match(slots, run(prompt, cache_scope="tenant")) == (slots[1], 4 * CHUNK)
    assert best_match(slots, run(prompt, adapter="adapter")) == (slots[2], 4 * CHUNK)
    assert best_match(slots, run(prompt, adapter="adapter", cache_scope="tenant")) == (None, 0)
    assert best_match(slots, run([7] * 500)) == (None, 0)
