"""Answers about models and tokens (O-4)."""

import json

import pytest

from onward.core.price import Price
from onward.routing.catalog import Model
from onward.wire.models import model_body, models_body
from onward.wire.tokens import detokenize_body, render_body, tokenize_body, tokenizer_info_body

PRICE = Price(input=100_000_000, cached_input=20_000_000, output=400_000_000)
MODEL = Model(id="org/m", context_length=8192, created=5, price=PRICE, aliases=("small",))


@pytest.mark.covers("O-4")
def test_a_model_says_its_context_capabilities_and_price() -> None:
    model = json.loads(model_body(MODEL))
    assert model == {
        "id": "org/m",
        "object": "model",
        "created": 5,
        "owned_by": "onward",
        "max_model_len": 8192,
        "context_length": 8192,
        "aliases": ["small"],
        "kind": "instruct",
        "capabilities": ["chat", "completions"],
        "renderer": None,
        "renderer_reason": None,
        "price": {"input": "0.10", "cached_input": "0.02", "output": "0.40"},
    }
    free = Model(id="x", context_length=1)
    assert json.loads(models_body([MODEL, free])) == {
        "object": "list",
        "data": [model, json.loads(model_body(free))],
    }
    assert json.loads(model_body(free))["price"] is None


@pytest.mark.covers("O-4")
def test_answers_about_tokens_have_the_shapes_that_tools_read() -> None:
    assert json.loads(tokenize_body([1, 2], 8192)) == {"tokens": [1, 2], "count": 2, "max_model_len": 8192}
    assert json.loads(detokenize_body("é")) == {"prompt": "é"}
    assert json.loads(render_body([1], "x", [2])) == {
        "prompt_token_ids": [1],
        "prompt": "x",
        "stop_token_ids": [2],
    }
    info = tokenizer_info_body(
        bos_token=None, eos_token="</s>", pad_token=None, chat_template="{{ x }}", vocab_size=3
    )
    assert json.loads(info) == {
        "bos_token": None,
        "eos_token": "</s>",
        "pad_token": None,
        "chat_template": "{{ x }}",
        "vocab_size": 3,
    }
