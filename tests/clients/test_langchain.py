"""LangChain's OpenAI classes, unmodified: legacy completions and chat."""

import warnings

import httpx
import pytest

pytestmark = [pytest.mark.covers("O-1", "O-2"), pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def langchain():
    """Imported by the process that runs these tests alone: it takes long."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import langchain_openai
    return langchain_openai


@pytest.fixture
async def options(server):
    """Its own connections would stay open, as long as Python runs."""
    with httpx.Client() as client:
        async with httpx.AsyncClient() as async_client:
            yield {
                "base_url": f"{server.base_url}/v1",
                "api_key": "none",
                "model": "smollm2-135m-instruct",
                "temperature": 0,
                "max_retries": 0,
                "http_client": client,
                "http_async_client": async_client,
            }


def test_legacy_completions(langchain, options):
    llm = langchain.OpenAI(**options, max_tokens=8)
    alone = llm.invoke("The capital of France is")
    assert "Paris" in alone
    batch = llm.generate(["The capital of France is", "One two three one two"], stop=["\n\n"])
    assert batch.generations[0][0].text == alone.partition("\n\n")[0]
    assert batch.llm_output["token_usage"]["completion_tokens"] > 0
    assert "".join(llm.stream("The capital of France is")) == alone


def test_several_choices(langchain, options):
    llm = langchain.OpenAI(**options | {"temperature": 1}, max_tokens=6, n=2, best_of=3)
    groups = llm.generate(["Once", "Twice"]).generations
    assert [len(group) for group in groups] == [2, 2]


async def test_chat(langchain, options):
    llm = langchain.ChatOpenAI(**options, max_completion_tokens=20, stream_usage=True)
    whole = await llm.ainvoke([("system", "Be brief."), ("human", "Say hello.")])
    assert whole.content
    assert whole.usage_metadata["output_tokens"] > 0
    pieces = [piece async for piece in llm.astream([("system", "Be brief."), ("human", "Say hello.")])]
    assert "".join(piece.content for piece in pieces) == whole.content
    assert any(piece.usage_metadata for piece in pieces)
