"""Write tests/data/qwen38.json.gz: prompts of Qwen3.8 as the `renderers` package makes them.

Run it from the root of the project, with a Python that has `renderers` beside the project and its
tests, and with the environment variable ONWARD_TOKENIZERS as the tests have it:

    python -m scripts.qwen38_goldens
"""

import gzip
import json
import os
from pathlib import Path
from typing import Any

import tokenizers
from renderers.configs import Qwen38RendererConfig  # pyright: ignore[reportMissingImports]
from renderers.qwen38 import Qwen38Renderer  # pyright: ignore[reportMissingImports]
from tests.unit.rendering.families import oracle
from tests.unit.rendering.families.test_qwen35 import OWN

TARGET = Path(__file__).parent.parent / "tests" / "data" / "qwen38.json.gz"
EFFORTS = {"default": {}, "low": {"reasoning_effort": "low"}, "medium": {"reasoning_effort": "medium"}} | {
    "xhigh": {"reasoning_effort": "xhigh"},
    "none": {"enable_thinking": False},
}


class Encoder:
    """The tokenizer of Qwen3.5 as the package wants it."""

    name_or_path = "Qwen/Qwen3.8-27B"
    unk_token_id = None

    def __init__(self, path: Path) -> None:
        self._tokenizer = tokenizers.Tokenizer.from_file(str(path))

    def convert_tokens_to_ids(self, token: str) -> int | None:
        return self._tokenizer.token_to_id(token)

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids

    def decode(self, ids: list[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=False)


def main() -> None:
    encoder = Encoder(Path(os.environ["ONWARD_TOKENIZERS"]) / "qwen3.5" / "tokenizer.json")
    prompts: dict[str, Any] = {}
    for title, conversation in (oracle.CONVERSATIONS | OWN).items():
        messages = [oracle.message_values(message) for message in conversation["messages"]]
        for effort, values in EFFORTS.items():
            for preserve in (True, False):
                if effort == "none" and not preserve:
                    continue  # here the package departs from the model's template, and says so
                config = Qwen38RendererConfig(**values, preserve_thinking=preserve)
                rendered = Qwen38Renderer(encoder, config).render(
                    messages,
                    tools=conversation.get("tools"),
                    add_generation_prompt=conversation.get("add_generation_prompt", True),
                )
                prompts.setdefault(title, {})[f"{effort} {preserve}"] = encoder.decode(rendered.token_ids)
    TARGET.write_bytes(gzip.compress(json.dumps(prompts, ensure_ascii=False).encode(), mtime=0))


if __name__ == "__main__":
    main()
