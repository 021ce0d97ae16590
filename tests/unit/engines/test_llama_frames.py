"""The wire between an engine process and its clients."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onward.core.failure import FailureKind
from onward.core.generate import EngineFinish, GenerateRequest, Sampling, ScoredToken
from onward.engines.llama import frames

FROM_ENGINE = [
    frames.Hello(49152, 8192, 4, 77),
    frames.Load(1, 2, 3),
    frames.Step(
        [
            frames.Progress(1, [ScoredToken(5, -0.5, ((5, -0.5), (6, -1.5)))]),
            frames.Progress(2, [], EngineFinish.LENGTH, 64, [ScoredToken(9), ScoredToken(8, -2.0, ())]),
        ]
    ),
    frames.Refused(3, FailureKind.ENGINE_FULL, "full", None, 2),
    frames.Loaded(4),
    frames.Down("no model"),
]


@given(st.lists(st.integers(1, 200), max_size=60))
def test_any_cutting_of_the_stream_gives_the_same_messages(cuts):
    stream = b"".join(frames.encode(message) for message in FROM_ENGINE)
    reader = frames.FrameReader(frames.decode_from_engine)
    received = []
    for size in [*cuts, len(stream)]:
        received += reader.feed(stream[:size])
        stream = stream[size:]
    assert received == FROM_ENGINE


def test_a_request_arrives_whole():
    request = GenerateRequest(
        request_id="r",
        prompt=list(range(2000)),
        max_tokens=5,
        sampling=Sampling(seed=-(2**63), logit_bias={7: -100.0}, temperature=0.3),
        stop_token_ids=[2],
        alternatives=0,
        cache_scope="tenant",
    )
    message = frames.Submit(2**40, request)
    assert frames.FrameReader(frames.decode_from_client).feed(frames.encode(message)) == [message]


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff\xff\xff",
        b"\x01\x00\x00\x00\xc1",
        frames.encode(frames.Hello(1, 2, 3, 4)),
        b"GET / HTTP/1.1\r\n\r\n",
    ],
    ids=["size", "bytes", "type", "http"],
)
def test_what_is_no_frame_is_an_error(data):
    with pytest.raises(frames.FrameError):
        frames.FrameReader(frames.decode_from_client).feed(data)


def test_failures_keep_all_their_parts():
    failure = frames.Refused(3, FailureKind.ENGINE_FULL, "full", "prompt", 2).failure()
    assert (failure.kind, failure.message, failure.param, failure.retry_after) == (
        FailureKind.ENGINE_FULL,
        "full",
        "prompt",
        2,
    )


def test_a_token_costs_few_bytes():
    """What each step writes for each running request."""
    assert len(msgspec.msgpack.encode(frames.Progress(1000, [ScoredToken(40000)]))) <= 20
