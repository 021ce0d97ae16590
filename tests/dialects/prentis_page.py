"""What the API's own page says of `prentis`, as far as a machine can check it: its OpenAPI document."""

import json
import re
from pathlib import Path
from typing import Any

import httpx
import jsonschema_rs

DOCUMENT: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "data" / "prentis-openapi.json").read_text("utf-8")
)
SCHEMAS = DOCUMENT["components"]["schemas"]
CODES: list[str] = SCHEMAS["ErrorResponse"]["properties"]["error"]["properties"]["code"]["enum"]
STATUSES = {int(status) for status in DOCUMENT["paths"]["/completions"]["post"]["responses"]}
_RETRIED = (429, 503)


def _validator(name: str, **changes: Any) -> jsonschema_rs.Draft202012Validator:
    schema = {**DOCUMENT, "$ref": f"#/components/schemas/{name}"}
    return jsonschema_rs.Draft202012Validator({**schema, **changes})


_EVENT = {
    **DOCUMENT["components"],
    "schemas": {
        **SCHEMAS,
        "CompletionResponse": {
            **SCHEMAS["CompletionResponse"],
            "required": [name for name in SCHEMAS["CompletionResponse"]["required"] if name != "usage"],
        },
    },
}
COMPLETION = _validator("CompletionResponse")
EVENT = _validator("CompletionResponse", components=_EVENT)
"""An event of a stream is an answer that need not have usage."""
USAGE = _validator("Usage")
ERROR = _validator("ErrorResponse")
_NAMES = re.compile(r"their-own-name|acme-inference", re.IGNORECASE)
"""What a provider calls itself and its models in these tests."""


def check_headers(answer: httpx.Response) -> None:
    """P-7: what every answer's header says, and what only a good one's does."""
    assert answer.headers["x-request-id"]
    good = answer.status_code < 400
    assert ("x-config-version" in answer.headers) == good
    if "x-provider-class" in answer.headers:
        assert good
        assert answer.headers["x-provider-class"] in ("primary", "fallback")
    if answer.status_code in _RETRIED:
        assert answer.headers["retry-after"].isdigit()
    assert not _NAMES.search(str(answer.headers))
    assert not _NAMES.search(answer.text)


def completion(answer: httpx.Response, model: str | None = None) -> dict[str, Any]:
    """A whole completion as the page has it."""
    assert answer.status_code == 200, answer.text
    check_headers(answer)
    assert answer.headers["x-provider-class"]
    body = answer.json()
    COMPLETION.validate(body)
    assert body["usage"]["prompt_tokens_details"]["cached_tokens"] >= 0
    assert model is None or body["model"] == model
    return body


def events(answer: httpx.Response, model: str | None = None, *, chat: bool = False) -> list[dict[str, Any]]:
    """The events of a whole stream as the page has them (P-6): nothing but data lines, the last before the end
    with usage and no choices, no other with usage.
    """
    assert answer.status_code == 200, answer.text
    check_headers(answer)
    assert answer.headers["x-provider-class"]
    assert answer.headers["content-type"].startswith("text/event-stream")
    *blocks, end, nothing = answer.text.split("\n\n")
    assert (end, nothing) == ("data: [DONE]", ""), answer.text
    assert all(block.startswith("data: {") and "\n" not in block for block in blocks), answer.text
    found = [json.loads(block.removeprefix("data: ")) for block in blocks]
    *others, last = found
    for event in found:
        if not chat:
            EVENT.validate(event)
        assert model is None or event["model"] == model
    assert last["choices"] == []
    USAGE.validate(last["usage"])
    assert last["usage"]["prompt_tokens_details"]["cached_tokens"] >= 0
    assert all(event["choices"] and "usage" not in event for event in others)
    assert len({(event["id"], event["created"]) for event in found}) == 1
    return found


def error(answer: httpx.Response) -> dict[str, Any]:
    """An error as the page has it (P-9)."""
    assert answer.status_code >= 400, answer.text
    check_headers(answer)
    body = answer.json()
    ERROR.validate(body)
    assert list(body["error"]) == ["message", "type", "code", "param"]
    assert body["error"]["message"].endswith(".")
    return body["error"]
