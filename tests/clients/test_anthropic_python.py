"""The Anthropic Python SDK, unmodified, against the real model: create, stream, errors."""

import anthropic
import pytest
from anthropic import Anthropic, AsyncAnthropic

pytestmark = pytest.mark.covers("P-12", "O-4")
MESSAGES = [{"role": "user", "content": "Say hello."}]
ASK = {"messages": MESSAGES, "max_tokens": 40, "extra_body": {"temperature": 0}}


@pytest.fixture(scope="module")
def sync_client(server):
    with Anthropic(base_url=server.base_url, api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
async def client(server):
    async with AsyncAnthropic(base_url=server.base_url, api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def model() -> str:
    return "HuggingFaceTB/SmolLM2-135M-Instruct"


def test_create(sync_client, model):
    message = sync_client.messages.create(model=model, **ASK)
    assert (message.type, message.role, message.model) == ("message", "assistant", model)
    assert message.id.startswith("msg_")
    assert message._request_id
    assert [block.type for block in message.content] == ["text"]
    assert message.content[0].text.strip()
    assert message.stop_reason == "end_turn"
    assert message.stop_sequence is None
    assert message.usage.output_tokens > 0
    assert message.usage.input_tokens + message.usage.cache_read_input_tokens > 0


def test_a_stream_ends_with_the_message_that_create_gives(sync_client, model):
    whole = sync_client.messages.create(model=model, **ASK)
    with sync_client.messages.stream(model=model, **ASK) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == whole.content[0].text
    assert final.content[0].text == text
    assert (final.stop_reason, final.role, final.model) == (whole.stop_reason, "assistant", model)
    assert final.usage.output_tokens == whole.usage.output_tokens
    assert _prompt(final) == _prompt(whole)


async def test_events_come_in_the_order_of_the_api(client, model):
    stream = await client.messages.create(model=model, stream=True, **ASK)
    kinds = [event.type async for event in stream]
    assert kinds[:2] == ["message_start", "content_block_start"]
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert set(kinds[2:-3]) == {"content_block_delta"}


async def test_limits_and_stop_sequences(client, model):
    cut = await client.messages.create(model=model, **{**ASK, "max_tokens": 2})
    assert (cut.stop_reason, cut.usage.output_tokens) == ("max_tokens", 2)
    whole = await client.messages.create(model=model, **ASK)
    word = whole.content[0].text.split()[1]
    stopped = await client.messages.create(model=model, stop_sequences=["zzz", word], **ASK)
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", word)
    assert stopped.content[0].text == whole.content[0].text.partition(word)[0]


async def test_what_the_assistant_has_begun_is_continued(client, model):
    whole = await client.messages.create(model=model, **ASK)
    text = whole.content[0].text
    begun = text[: text.index(" ")]
    more = await client.messages.create(
        model=model, **{**ASK, "messages": [*MESSAGES, {"role": "assistant", "content": begun}]}
    )
    assert begun + more.content[0].text == text


async def test_more_tokens_than_the_context_has_are_no_error(client, model):
    message = await client.messages.create(model=model, **{**ASK, "max_tokens": 1_000_000}, timeout=60)
    assert message.stop_reason == "end_turn"


async def test_a_system_prompt_and_blocks(client, model):
    system = [{"type": "text", "text": "You are a parrot.", "cache_control": {"type": "ephemeral"}}]
    blocks = [{"type": "text", "text": "Say"}, {"type": "text", "text": "hello."}]
    asked = {**ASK, "messages": [{"role": "user", "content": blocks}]}
    plain = await client.messages.create(model=model, **asked)
    told = await client.messages.create(model=model, system=system, **asked)
    written = await client.messages.create(model=model, system="You are a parrot.", **asked)
    assert _prompt(told) == _prompt(written)
    assert _prompt(told) != _prompt(plain)


async def test_errors_are_the_classes_users_catch(client, model):
    with pytest.raises(anthropic.NotFoundError) as unknown:
        await client.messages.create(model="nobody/nothing", **ASK)
    assert unknown.value.body["error"]["type"] == "not_found_error"
    assert unknown.value.request_id == unknown.value.body["request_id"]
    with pytest.raises(anthropic.BadRequestError) as bad:
        await client.messages.create(model=model, **{**ASK, "extra_body": {"temperature": 1.5}})
    assert bad.value.body["type"] == "error"
    assert bad.value.body["error"]["type"] == "invalid_request_error"
    assert "'temperature'" in bad.value.body["error"]["message"]
    document = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "x"}}
    asked = {**ASK, "messages": [{"role": "user", "content": [document]}]}
    with pytest.raises(anthropic.BadRequestError, match="documents are not read here"):
        await client.messages.create(model=model, **asked)
    search = {"type": "web_search_20250305", "name": "web_search"}
    with pytest.raises(anthropic.BadRequestError, match="that the request itself describes"):
        await client.messages.create(model=model, tools=[search], **ASK)
    with pytest.raises(anthropic.NotFoundError):
        await client.messages.count_tokens(model=model, messages=MESSAGES)


def _prompt(message) -> int:
    usage = message.usage
    return usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens
