"""G19: errors have the shape and the status that clients know."""

from typing import Any

import openai
import pytest

from onward.wiring.config import Tenant
from tests.http.gateway import MODEL, SECRET, Gateway, another_key, gateway
from tests.mock_answers import Behaviour
from tests.mock_provider import MockProvider


async def raised(running: Gateway, path: str = "/v1", secret: str = SECRET, **body: Any) -> openai.APIError:
    """What the OpenAI SDK makes of a call that fails."""
    values = {"model": MODEL, "prompt": "two words", "max_tokens": 5, **body}
    base_url = f"http://127.0.0.1:{running.port}{path}"

    async def call(client: openai.AsyncOpenAI) -> None:
        async for _ in await client.completions.create(**values):
            pass

    async with openai.AsyncOpenAI(base_url=base_url, api_key=secret, max_retries=0) as client:
        with pytest.raises(openai.APIError) as caught:
            await call(client)
    error = caught.value
    assert isinstance(error.body, dict)
    assert isinstance(error.body["type"], str)
    assert error.body["code"] is None or isinstance(error.body["code"], str)
    assert isinstance(error.body["message"], str)
    return error


CASES = [
    # what the provider does, what is sent, what is raised, its code
    (None, {"secret": "on-nobodys-key-0123"}, openai.AuthenticationError, "invalid_api_key"),
    (None, {"secret": "on-secret-suspended"}, openai.PermissionDeniedError, "tenant_suspended"),
    (None, {"secret": "on-secret-unpaid"}, openai.APIStatusError, "payment_required"),
    (None, {"model": "org/none"}, openai.NotFoundError, "model_not_found"),
    (None, {"n": 0}, openai.BadRequestError, "invalid_request"),
    (None, {"max_tokens": 10**6}, openai.APIStatusError, "insufficient_balance"),
    (None, {"secret": "on-secret-slow"}, openai.RateLimitError, "rate_limit_exceeded"),
    (Behaviour(status=400), {}, openai.BadRequestError, "invalid_request"),
    (Behaviour(status=401), {}, openai.InternalServerError, "upstream_unavailable"),
    (Behaviour(status=404), {}, openai.NotFoundError, "model_not_found"),
    (Behaviour(status=429), {}, openai.RateLimitError, "upstream_rate_limited"),
    (Behaviour(status=500), {}, openai.InternalServerError, "upstream_unavailable"),
    (Behaviour(drop=True), {}, openai.InternalServerError, "upstream_unavailable"),
    (Behaviour(html=True, status=502), {}, openai.InternalServerError, "upstream_unavailable"),
]


@pytest.fixture
async def running(tmp_path, mock: MockProvider):
    tenants = [Tenant(name=status, status=status) for status in ("suspended", "unpaid")]
    keys = [another_key(status, tenant=status) for status in ("suspended", "unpaid")]
    keys.append(another_key("slow", tokens_per_minute=1))
    async with gateway(tmp_path, mock, tenant={"balance": "1.00"}, tenants=tenants, keys=keys) as running:
        yield running


@pytest.mark.complaint("G19")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("does", "sends", "error", "code"), CASES, ids=lambda value: str(value)[:40])
async def test_g19_an_sdk_raises_what_it_should(
    running: Gateway, mock: MockProvider, does, sends: dict, error: type, code: str, stream: bool
):
    if does is not None:
        mock.always(does)
    caught = await raised(running, **sends, stream=stream)
    assert isinstance(caught, error), caught
    assert caught.code == code


@pytest.mark.complaint("G19")
async def test_g19_an_error_within_a_stream(running: Gateway, mock: MockProvider):
    mock.always(Behaviour(cut=2))
    caught = await raised(running, stream=True)
    assert caught.code == "upstream_unavailable"


@pytest.mark.complaint("G19")
@pytest.mark.parametrize("path", ["/v1", "/tokens/v1"])
async def test_g19_a_store_that_is_down_is_no_wrong_key(running: Gateway, path: str):
    running.store.broken = True
    caught = await raised(running, path)
    assert isinstance(caught, openai.InternalServerError)
    assert (caught.status_code, caught.code) == (503, "store_down")
    running.admission.keys.available = False  # for so long that keys may have been revoked
    caught = await raised(running, path)
    assert (caught.status_code, caught.code) == (503, "store_down")
