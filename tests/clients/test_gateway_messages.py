"""The Anthropic and OpenAI SDKs, unmodified, through a gateway: a provider of Messages as it is, a provider of
chats in its words, and chats at a provider of Messages. One is a real Onward with a real model, one a mock.
"""

import httpx
import pytest
from anthropic import Anthropic, APIStatusError, AsyncAnthropic, BadRequestError
from openai import AsyncOpenAI
from tests.conftest import start_server
from tests.mock_answers import Behaviour
from tests.mock_messages import SIGNATURE
from tests.mock_provider import MockProvider

pytestmark = pytest.mark.covers("P-12", "O-4")
CONFIG = """
[dialects]
openai = "/v1"
prentis = "/prentis/v1"

[[providers]]
name = "messages"
protocol = "anthropic"
base_url = "{real}/v1"

[[providers]]
name = "chats"
protocol = "openai"
base_url = "{real}/v1"

[[providers]]
name = "mock-messages"
protocol = "anthropic"
base_url = "{mock}"

[[providers]]
name = "mock-chats"
protocol = "openai"
base_url = "{mock}"
"""
MODEL = """
[[models]]
id = "{provider}"
kind = "hybrid"

[[models.deployments]]
name = "{provider}"
provider = "{provider}"
model = "{name}"
"""
REAL = "gpt-3.5-turbo-instruct"
"""An alias of the model that the real server has."""
ASK = {"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 24}
GREEDY = {"extra_body": {"temperature": 0}}
TOOLS = [{"name": name, "input_schema": {"type": "object", "properties": {"a": {}}}} for name in ("f0", "f1")]
both = pytest.mark.parametrize("model", ["messages", "chats"])
mocked = pytest.mark.parametrize("model", ["mock-messages", "mock-chats"])


@pytest.fixture(scope="module")
def mock():
    with MockProvider() as provider:
        yield provider


@pytest.fixture(scope="module")
def gateway(server, mock, tmp_path_factory):
    names = {"messages": REAL, "chats": REAL, "mock-messages": "theirs", "mock-chats": "theirs"}
    models = [MODEL.format(provider=provider, name=name) for provider, name in names.items()]
    adaptive = MODEL.format(provider="mock-messages", name="theirs").replace("mock-messages", "adaptive", 1)
    models.append(adaptive.replace('name = "mock-messages"', 'name = "adaptive"') + 'thinking = "adaptive"\n')
    config = CONFIG.format(real=server.base_url, mock=mock.base_url) + "".join(models)
    running = start_server(tmp_path_factory.mktemp("gateway"), config=config)
    try:
        running.wait_ready()
        yield running
        assert running.stop() == 0, running.log.read_text()
    finally:
        running.process.kill()
        running.process.wait()


@pytest.fixture
async def claude(gateway):
    async with AsyncAnthropic(base_url=gateway.base_url, api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
async def openai(gateway):
    async with AsyncOpenAI(base_url=f"{gateway.base_url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def said(server) -> str:
    """What the real model says, asked directly."""
    with Anthropic(base_url=server.base_url, api_key="none", max_retries=0) as client:
        return client.messages.create(model=REAL, **ASK, **GREEDY).content[0].text


@both
async def test_create(claude, model: str, said: str):
    message = await claude.messages.create(model=model, **ASK, **GREEDY)
    assert (message.model, message.role, message.content[0].text) == (model, "assistant", said)
    assert message.usage.output_tokens > 0
    assert message.usage.input_tokens + message.usage.cache_read_input_tokens > 0


@both
async def test_stream(claude, model: str, said: str):
    async with claude.messages.stream(model=model, **ASK, **GREEDY) as stream:
        text = "".join([piece async for piece in stream.text_stream])
        final = await stream.get_final_message()
    assert text == final.content[0].text == said
    assert (final.model, final.stop_reason) == (model, "end_turn")
    assert final.usage.output_tokens > 0


@both
async def test_limits_and_stops(claude, model: str, said: str):
    cut = await claude.messages.create(model=model, **{**ASK, "max_tokens": 2}, **GREEDY)
    assert (cut.stop_reason, cut.usage.output_tokens) == ("max_tokens", 2)
    word = said.split()[1]
    stopped = await claude.messages.create(model=model, stop_sequences=[word], **ASK, **GREEDY)
    assert stopped.content[0].text == said.partition(word)[0]
    if model == "messages":  # a served model's own answer; OpenAI's chat does not tell
        assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", word)


@mocked
async def test_usage_is_always_there(claude, mock: MockProvider, model: str):
    mock.always(Behaviour(usage="never"))
    async with claude.messages.stream(model=model, **ASK) as stream:
        streamed = await stream.get_final_message()
    for message in (await claude.messages.create(model=model, **ASK), streamed):
        assert message.usage.input_tokens > 0
        assert message.usage.output_tokens > 0


@mocked
async def test_a_matched_stop_is_told(claude, mock: MockProvider, model: str):
    mock.always(Behaviour(stop_reason="stop_sequence", stop_sequence="END"))
    ask = {"model": model, **ASK, "stop_sequences": ["END", "FIN"]}
    async with claude.messages.stream(**ask) as stream:
        streamed = await stream.get_final_message()
    for message in (await claude.messages.create(**ask), streamed):
        assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", "END")
    mock.always(Behaviour())
    ended = await claude.messages.create(**ask)
    assert (ended.stop_reason, ended.stop_sequence) == ("end_turn", None)


async def test_prefixes_of_replies(claude, said: str):
    begun = said[: said.index(" ")]
    turns = [*ASK["messages"], {"role": "assistant", "content": begun}]
    for model in ("messages", "chats"):
        more = await claude.messages.create(model=model, **{**ASK, "messages": turns}, **GREEDY)
        assert begun + more.content[0].text == said


@pytest.mark.parametrize("stream", [False, True])
async def test_chat_at_a_provider_of_messages(openai, said: str, stream: bool):
    answer = await openai.chat.completions.create(
        model="messages",
        temperature=0,
        stream=stream,
        **ASK,
        **({"stream_options": {"include_usage": True}} if stream else {}),
    )
    if stream:
        chunks = [chunk async for chunk in answer]
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        usage, finish = chunks[-1].usage, chunks[-2].choices[0].finish_reason
    else:
        [choice] = answer.choices
        text, usage, finish = choice.message.content, answer.usage, choice.finish_reason
    assert (text, finish) == (said, "stop")
    assert usage.completion_tokens > 0
    assert usage.prompt_tokens > 0


@mocked
async def test_tools(claude, mock: MockProvider, model: str):
    mock.always(Behaviour(tools=True))
    ask = {"model": model, **ASK, "tools": TOOLS, "tool_choice": {"type": "any"}}
    whole = await claude.messages.create(**ask)
    async with claude.messages.stream(**ask) as stream:
        streamed = await stream.get_final_message()
    for message in (whole, streamed):
        assert message.stop_reason == "tool_use"
        assert [(block.name, block.input) for block in message.content] == [
            ("f0", {"a": 1}),
            ("f1", {"a": 1}),
        ]
    results = [{"type": "tool_result", "tool_use_id": block.id, "content": "done"} for block in whole.content]
    turns = [
        *ASK["messages"],
        {"role": "assistant", "content": whole.content},
        {"role": "user", "content": results},
    ]
    mock.always(Behaviour())
    answer = await claude.messages.create(model=model, messages=turns, max_tokens=9, tools=TOOLS)
    assert answer.content[0].text == " w0 w1 w2 w3 w4"


@mocked
async def test_thinking(claude, mock: MockProvider, model: str):
    mock.always(Behaviour(reasoning=2))
    thinking = {"type": "enabled", "budget_tokens": 1024}
    ask = {"model": model, **ASK, "max_tokens": 2000, "thinking": thinking}
    async with claude.messages.stream(**ask) as stream:
        message = await stream.get_final_message()
    whole = await claude.messages.create(**ask)
    assert [block.to_dict() for block in whole.content] == [
        {"type": "thinking", "thinking": " w0 w1", "signature": message.content[0].signature},
        {"type": "text", "text": " w2 w3 w4"},
    ]
    first, second = message.content
    assert (first.type, first.thinking, second.text) == ("thinking", " w0 w1", " w2 w3 w4")
    assert first.signature == (SIGNATURE if model == "mock-messages" else "")
    turns = [
        *ASK["messages"],
        {"role": "assistant", "content": message.content},
        {"role": "user", "content": "More."},
    ]
    await claude.messages.create(**{**ask, "messages": turns})
    sent = mock.requests[-1].json["messages"][1]
    if model == "mock-messages":
        assert sent["content"][0] == {"type": "thinking", "thinking": " w0 w1", "signature": SIGNATURE}
    else:
        assert sent["reasoning_content"] == " w0 w1"


@pytest.mark.parametrize(
    ("effort", "thinking", "output"),
    [
        ("low", {"type": "adaptive", "display": "summarized"}, {"effort": "low"}),
        ("none", {"type": "disabled"}, None),
    ],
)
async def test_effort_for_a_model_that_adapts(openai, mock, effort: str, thinking: dict, output: dict | None):
    await openai.chat.completions.create(model="adaptive", **ASK, reasoning_effort=effort)
    sent = mock.requests[-1].json
    assert (sent["thinking"], sent.get("output_config")) == (thinking, output)
    ask = {**ASK, "max_tokens": 9000}
    await openai.chat.completions.create(model="mock-messages", **ask, reasoning_effort="low")
    assert mock.requests[-1].json["thinking"] == {"type": "enabled", "budget_tokens": 2048}


@pytest.mark.complaint("G09")
async def test_signed_reasoning_in_a_chat_goes_back_as_it_came(openai, mock: MockProvider):
    """An agent that sends the SDK's own message back, whatever it holds."""
    mock.always(Behaviour(reasoning=2, redacted=True, tools=True))
    function = {"type": "function", "function": {"name": "f0", "parameters": {"type": "object"}}}
    ask = {"model": "mock-messages", "tools": [function]}
    answer = await openai.chat.completions.create(messages=ASK["messages"], **ask)
    reply = answer.choices[0].message
    results = [{"role": "tool", "tool_call_id": call.id, "content": "done"} for call in reply.tool_calls]
    turns = [*ASK["messages"], reply.model_dump(exclude_none=True), *results]
    await openai.chat.completions.create(messages=turns, **ask)
    blocks = mock.requests[-1].json["messages"][1]["content"]
    assert [block["type"] for block in blocks] == ["thinking", "redacted_thinking", "tool_use", "tool_use"]
    assert blocks[0] == {"type": "thinking", "thinking": " w0 w1", "signature": SIGNATURE}


@pytest.mark.complaint("G09")
async def test_signed_reasoning_of_a_stream_is_joined_by_the_sdk(openai, mock: MockProvider):
    """Two blocks in deltas of their own: the SDK's helper joins lists by `index`."""
    mock.always(Behaviour(reasoning=2, redacted=True))
    ask = {"model": "mock-messages", "max_tokens": 9}
    async with openai.chat.completions.stream(messages=ASK["messages"], **ask) as stream:
        completion = await stream.get_final_completion()
    reply = completion.choices[0].message
    turns = [*ASK["messages"], reply.model_dump(exclude_none=True), *ASK["messages"]]
    await openai.chat.completions.create(messages=turns, **ask)
    blocks = mock.requests[-1].json["messages"][1]["content"]
    assert [block["type"] for block in blocks] == ["thinking", "redacted_thinking", "text"]
    assert blocks[0] == {"type": "thinking", "thinking": " w0 w1", "signature": SIGNATURE}


@mocked
@pytest.mark.parametrize(("status", "shown"), [(400, 400), (429, 429), (529, 503)])
async def test_errors_are_of_the_sdks_classes(claude, mock, model: str, status: int, shown: int):
    mock.say(Behaviour(status=status))
    with pytest.raises(APIStatusError) as caught:
        await claude.messages.create(model=model, **ASK)
    assert caught.value.status_code == shown
    assert caught.value.body["type"] == "error"
    mock.say(Behaviour(error_event=5))
    with pytest.raises(APIStatusError, match="failed while it answered"):
        async with claude.messages.stream(model=model, **ASK) as stream:
            await stream.get_final_message()


async def test_a_field_that_cannot_be_translated(claude):
    with pytest.raises(BadRequestError, match="Constrained decoding"):
        await claude.messages.create(
            model="chats", **ASK, extra_body={"output_config": {"format": {"type": "json_schema"}}}
        )


def test_prentis_has_them_too(gateway):
    for model in ("messages", "chats"):
        body = {"model": model, **ASK, "temperature": 0}
        answer = httpx.post(f"{gateway.base_url}/prentis/v1/messages", json=body, timeout=60, verify=False)
        assert answer.status_code == 200, answer.text
        assert answer.json()["content"][0]["type"] == "text"
        assert answer.headers["x-provider-class"] == "primary"
