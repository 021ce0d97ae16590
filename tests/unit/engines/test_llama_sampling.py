"""Sampling against a plain reference that sorts everything."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from onward.core.generate import GenerateRequest, Sampling
from onward.engines.llama.sampling import Sampler, Softmax, _keep, _pick_block, top_ids


def row(size: int = 3000, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 3, size).astype(np.float32)


def sampler(prompt: list[int] | None = None, **fields) -> Sampler:
    sampling = Sampling(
        **{name: fields.pop(name) for name in list(fields) if name in Sampling.__struct_fields__}
    )
    return Sampler(
        GenerateRequest(request_id="r", prompt=prompt or [1], max_tokens=9, sampling=sampling, **fields)
    )


values = st.floats(-20, 20, width=32) | st.sampled_from([0.0, 1.0, -math.inf])


@settings(max_examples=200, deadline=None)
@given(
    arrays.arrays(np.float32, st.integers(2, 3000), elements=values, fill=st.just(np.float32(1))), st.data()
)
def test_top_ids_are_sorted_and_ties_go_to_the_lowest(numbers, data):
    count = data.draw(st.integers(1, numbers.shape[0]))
    expected = sorted(range(numbers.shape[0]), key=lambda index: (-numbers[index], index))[:count]
    assert top_ids(numbers, count).tolist() == expected


def test_log_probabilities_are_a_log_softmax():
    numbers = row()
    exact = numbers.astype(np.float64) - np.log(np.exp(numbers.astype(np.float64)).sum())
    scored = Softmax(numbers).score(17, 20)
    assert scored.logprob == pytest.approx(exact[17], abs=1e-5)
    assert [other for other, _ in scored.top] == np.argsort(-numbers, kind="stable")[:20].tolist()
    assert all(value == pytest.approx(exact[other], abs=1e-5) for other, value in scored.top)


def test_a_certain_token_has_log_probability_zero_and_not_above():
    numbers = np.full(1000, -200, dtype=np.float32)
    numbers[3] = 100
    assert Softmax(numbers).logprob(3) == 0
    assert Softmax(numbers).logprob(4) == pytest.approx(-300, abs=1e-3)


def reference_keep(weights: np.ndarray, top_k: int, top_p: float, min_p: float) -> list[int]:
    ids = [
        i
        for i in sorted(range(len(weights)), key=lambda i: (-weights[i], i))
        if weights[i] >= np.float32(min_p)
    ]
    ids = ids[:top_k] if top_k > 0 else ids
    total, before, kept = sum(float(weights[i]) for i in ids), 0.0, []
    for index in ids:
        if kept and before >= top_p * total:
            break
        kept.append(index)
        before += float(weights[index])
    return kept


@settings(max_examples=100, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([10, 300, 5000]),
    st.sampled_from([0, 1, 2, 40, 200, 9999]),
    st.sampled_from([1.0, 0.999, 0.9, 0.5, 0.01]),
    st.sampled_from([0.0, 0.001, 0.1, 1.0]),
)
def test_filters_keep_what_they_should(seed, size, top_k, top_p, min_p):
    numbers = row(size, seed)
    weights = np.exp(numbers - numbers.max())
    assert _keep(weights, top_k=top_k, top_p=top_p, min_p=min_p).tolist() == reference_keep(
        weights, top_k, top_p, min_p
    )


@pytest.mark.parametrize(
    "fields", [{}, {"top_k": 50}, {"top_p": 0.95}, {"temperature": 0.7}, {"min_p": 0.01}]
)
def test_draws_follow_the_distribution(fields):
    numbers = np.log(np.array([0.5, 0.25, 0.15, 0.1], dtype=np.float32))
    numbers = np.concatenate((numbers, np.full(600, -np.inf, dtype=np.float32)))
    weights = np.exp(numbers / np.float32(fields.get("temperature", 1.0)))[:4]
    draws = np.bincount(
        [sampler(seed=seed, **fields).sample(numbers).id for seed in range(4000)], minlength=4
    )
    assert len(draws) == 4, "a token without any probability was drawn"
    expected = weights / weights.sum()
    # None of these filters cuts one of the four.
    assert draws / 4000 == pytest.approx(expected, abs=0.04)


@pytest.mark.parametrize("uniform", [0.0, 0.25, 0.5, 0.999999, 1 - 2**-53])
def test_a_draw_is_where_the_cumulated_weight_is(uniform):
    weights = np.random.default_rng(5).random(1000).astype(np.float32)
    weights[700:] = 0
    sums = np.cumsum(weights, dtype=np.float64)
    expected = min(int(np.searchsorted(sums, uniform * sums[-1], side="right")), 699)
    assert _pick_block(weights, uniform) == expected


def test_the_draw_depends_on_the_seed_and_the_index_alone():
    numbers = row()
    left, right = sampler(seed=9), sampler(seed=9)
    first = [left.sample(numbers).id for _ in range(20)]
    for _ in range(5):
        right.sample(row(seed=4))
    assert [right.sample(numbers).id for _ in range(15)] == first[5:]
    assert len(set(first)) > 5


@pytest.mark.parametrize("seed", [0, -1, 2**63 - 1, -(2**63)])
def test_any_int64_is_a_seed(seed):
    numbers = row()
    assert sampler(seed=seed).sample(numbers) == sampler(seed=seed).sample(numbers)


def test_penalties():
    numbers = np.zeros(100, dtype=np.float32)
    numbers[[5, 6, 7]] = [3.0, 2.5, 2.0]
    greedy = sampler(temperature=0, presence_penalty=0.75, frequency_penalty=0.5)
    # 5: 3 -> 1.75 -> 1.25; 6: 2.5 -> 1.25; 7: 2 -> 0.75; ties to the lowest ID.
    assert [greedy.sample(numbers).id for _ in range(5)] == [5, 6, 7, 5, 5]


def test_repetition_penalty_divides_above_zero_and_multiplies_below():
    numbers = np.full(10, -1.0, dtype=np.float32)
    numbers[3] = 1.0
    chosen = sampler([3], temperature=0, repetition_penalty=2.0)
    adjusted = chosen._adjust(numbers)
    assert adjusted[3] == 0.5
    chosen.sample(numbers)
    chosen = sampler([4], temperature=0, repetition_penalty=2.0)
    assert chosen._adjust(numbers)[4] == -2.0


def test_nothing_is_written_into_the_models_row():
    numbers = row()
    numbers.setflags(write=False)
    chosen = sampler(
        [1, 2],
        temperature=0.5,
        top_k=5,
        top_p=0.5,
        min_p=0.1,
        presence_penalty=1,
        repetition_penalty=1.5,
        logit_bias={3: 5.0},
        stop_token_ids=[4],
        min_tokens=2,
        alternatives=3,
    )
    for _ in range(3):
        chosen.sample(numbers)


def test_an_extreme_temperature_neither_warns_nor_fails():
    numbers = row()
    assert sampler(temperature=1e-4, seed=1).sample(numbers).id == numbers.argmax()
    assert 0 <= sampler(temperature=2.0, seed=1).sample(numbers).id < 3000
