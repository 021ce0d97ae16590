"""CPU time per token of render, detokenize and parse, beside the `tokenizers` library's decode stream.

    python bench/parse/parse.py FAMILY TOKENIZER_JSON [--tokens N]

A reply of reasoning, text and calls is pushed token by token, as a stream of one-token steps is;
"detokenize" is the token path alone (UTF-8, IDs), "whole path" what a chat goes through. Medians of
alternated rounds; CPU time of this process.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import tokenizers
from tokenizers.decoders import DecodeStream

from onward.core.generate import EngineFinish, ScoredToken
from onward.core.request import ChatRequest, Message, ToolCall
from onward.rendering.families import registry
from onward.rendering.families.native import NativeRenderer
from onward.rendering.renderer import ReplyOptions
from onward.rendering.token_path import TokenPath
from onward.wiring.offline import read_tokenizer

WORDS = "The quick brown fox jumps over the lazy dog; naïve 日本語 😀, x = {'a': [1, 2]}\n"
TOOL = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}
ROUNDS = 7


def conversation(size: int) -> list[Message]:
    text = WORDS * (size // 30)
    calls = [ToolCall(f"call0000{n}", "look_up", '{"query": "%s"}' % ("fox " * 40)) for n in range(2)]
    return [
        Message(role="user", content=text),
        Message(role="assistant", content=text, reasoning=text.strip(), tool_calls=calls),
    ]


def measured(work: Callable[[], int], rounds: int = ROUNDS) -> float:
    """Microseconds of CPU per token, the median of some rounds."""
    found: list[float] = []
    for _ in range(rounds):
        start = time.process_time()
        tokens = work()
        found.append((time.process_time() - start) * 1e6 / max(1, tokens))
    return statistics.median(found)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("family")
    parser.add_argument("tokenizer", type=Path)
    parser.add_argument("--tokens", type=int, default=4000)
    chosen = parser.parse_args()
    tokenizer = read_tokenizer(chosen.tokenizer)
    renderer = NativeRenderer(registry.named(chosen.family), tokenizer)
    path = chosen.tokenizer / "tokenizer.json" if chosen.tokenizer.is_dir() else chosen.tokenizer
    theirs = tokenizers.Tokenizer.from_file(str(path))
    request = ChatRequest(
        model="", messages=conversation(chosen.tokens), tools=[TOOL], add_generation_prompt=False
    )
    prompt, reply = renderer.build(request).ids()
    scored = [ScoredToken(token) for token in reply]

    def render() -> int:
        return len(renderer.render(request).ids)

    def encode_alone() -> int:
        return len(theirs.encode(tokenizer.decode(prompt), add_special_tokens=False).ids)

    def detokenize() -> int:
        one = TokenPath(tokenizer, index=0, stops=[], end_token_ids=(), want_entries=False, want_ids=False)
        for token in scored:
            one.push(token)
            one.take()
        return len(scored)

    def whole() -> int:
        one = renderer.reply(ReplyOptions(tools=[TOOL]))
        for token in scored:
            one.push(token)
            one.take()
        assert one.finish(EngineFinish.LENGTH).plain is None
        return len(scored)

    def whole_with_ids() -> int:
        one = renderer.reply(ReplyOptions(tools=[TOOL], stops=["STOP", "\n\n\n\n"], want_ids=True))
        for token in scored:
            one.push(token)
            one.take()
        one.finish(EngineFinish.LENGTH)
        return len(scored)

    def decode_stream() -> int:
        stream = DecodeStream(skip_special_tokens=False)
        for token in reply:
            stream.step(theirs, token)
        return len(reply)

    print(f"{chosen.family}: prompt {len(prompt)} tokens, reply {len(reply)} tokens; us per token")
    for name, work in [
        ("render a conversation", render),
        ("  tokenizers: encode its text", encode_alone),
        ("detokenize", detokenize),
        ("  tokenizers: DecodeStream", decode_stream),
        ("whole path: detokenize and parse", whole),
        ("whole path with stops and IDs", whole_with_ids),
    ]:
        work()
        print(f"{name:36}{measured(work):8.2f}")


if __name__ == "__main__":
    main()
