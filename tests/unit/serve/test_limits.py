"""How many tokens a request may sample, and which seed each of its candidates has."""

import msgspec
import pytest

from onward.core.failure import Failure, FailureKind
from onward.core.generate import GenerateRequest, Sampling
from onward.core.request import CompletionRequest
from onward.engines.scripted import ScriptedEngine
from onward.routing.catalog import Model
from onward.serve.job import candidate
from onward.serve.model import ServedModel
from onward.serve.prompts import output_limit

CONTEXT = 100


def limit(tokenizer, prompt_tokens: int, **options) -> int:
    model = Model(id="m", context_length=CONTEXT, capabilities=frozenset({"completions"}))
    served = ServedModel(model, tokenizer, None, ScriptedEngine([]))
    request = CompletionRequest(model="m", prompts=["x"], **options)
    return output_limit(served, request, prompt_tokens, "prompt")


def refused(tokenizer, prompt_tokens: int, **options) -> Failure:
    with pytest.raises(Failure) as caught:
        limit(tokenizer, prompt_tokens, **options)
    return caught.value


@pytest.mark.covers("O-1", "TC-4")
def test_the_limit_is_explicit_and_never_past_the_context(tokenizer):
    assert limit(tokenizer, 10) == 90
    assert limit(tokenizer, 10, max_tokens=7) == 7
    assert limit(tokenizer, 10, unset_max_tokens=16) == 16
    assert limit(tokenizer, 95, unset_max_tokens=16) == 5
    assert limit(tokenizer, 95, max_tokens=20, clip_to_context=True) == 5
    assert limit(tokenizer, 100, max_tokens=0) == 0


@pytest.mark.covers("O-5", "TC-4")
def test_what_does_not_fit_is_refused_with_both_numbers(tokenizer):
    long = refused(tokenizer, 100)
    assert (long.kind, long.param) == (FailureKind.CONTEXT_LENGTH_EXCEEDED, "prompt")
    assert "100 tokens" in long.message
    much = refused(tokenizer, 90, max_tokens=11)
    assert (much.kind, much.param) == (FailureKind.CONTEXT_LENGTH_EXCEEDED, "max_tokens")
    assert all(number in much.message for number in ("90", "11", "101", "100", "at most 10"))
    scored = refused(tokenizer, 101, max_tokens=0)
    assert "no room for output" not in scored.message


@pytest.mark.covers("O-3")
def test_min_tokens_above_the_limit_says_which(tokenizer):
    failure = refused(tokenizer, 10, min_tokens=17, unset_max_tokens=16)
    assert failure.param == "min_tokens"
    assert "17" in failure.message
    assert "16" in failure.message
    assert "not set" in failure.message
    assert "not set" not in refused(tokenizer, 10, min_tokens=6, max_tokens=5).message
    assert limit(tokenizer, 10, min_tokens=5, max_tokens=5) == 5


@pytest.mark.covers("O-1")
def test_neighbouring_seeds_share_no_choices():
    """The first candidate has the request's own seed; all others a hash of it (int64)."""
    base = GenerateRequest(request_id="r", prompt=[1], max_tokens=1)
    seeds = []
    for seed in (-(2**63), -1, 0, 1, 2, 2**63 - 1):
        asked = msgspec.structs.replace(base, sampling=Sampling(seed=seed))
        own = [candidate(asked, number).sampling.seed for number in range(8)]
        assert own[0] == seed
        assert all(-(2**63) <= one < 2**63 for one in own)
        seeds += own
    assert len(set(seeds)) == len(seeds)
    assert candidate(base, 3).sampling.seed is None
