"""`models` and `render` against a stand-in for a server."""

import json


def test_lists_models(onward, stand_in):
    assert onward("models", "list") == (0, "first\t64\norg/second\n", "")


def test_shows_one_model(onward, stand_in):
    """Its ID may hold slashes."""
    code, output, _ = onward("models", "show", "org/second")
    assert code == 0
    assert json.loads(output) == {"id": "org/second"}


def test_says_what_the_server_says(onward, stand_in):
    assert onward("models", "show", "none") == (1, "", "onward: The model does not exist: try another\n")


def test_renders_a_chat_request(onward, stand_in):
    request = {"messages": [{"role": "user", "content": "Hi"}]}
    code, output, _ = onward("render", "first", given=json.dumps(request))
    assert code == 0
    assert json.loads(output)["prompt_token_ids"] == [1]
    assert stand_in.bodies() == [request | {"model": "first"}]


def test_render_says_what_is_wrong_with_its_input(onward, stand_in):
    assert "the input is not JSON" in onward("render", "first", given="{")[2]
    assert "must be a JSON object" in onward("render", "first", given="[]")[2]
    assert stand_in.asked == []
