"""A tokenizer out of a `tokenizer.json`, as model repositories carry it."""

import json
from collections.abc import Mapping
from typing import Any, Final, cast

from tokenizers import Tokenizer as Merger

from onward.rendering.backend import hidden_names
from onward.rendering.end_tokens import end_tokens
from onward.rendering.tokenizer import Tokenizer
from onward.rendering.vocabulary import Spelling, TokenizerError, TokenKind, Vocabulary, is_byte_token

Json = dict[str, Any]

_BYTE_DECODER: Final = "ByteLevel"
_FALLBACK_DECODER: Final = "ByteFallback"


def from_json(text: str, *, named: Mapping[str, str] | None = None, add_bos: bool = False) -> Tokenizer:
    """The tokenizer that `text` describes; it must be BPE. TokenizerError says what is not supported.

    `named` gives the spellings of `bos_token`, `eos_token` and `pad_token`, as
    `tokenizer_config.json` has them.
    """
    try:
        whole = cast("Json", json.loads(text))
        model = cast("Json", whole["model"])
        added = cast("list[Json]", whole.get("added_tokens") or [])
        vocab = cast("dict[str, int]", model["vocab"])
    except (ValueError, KeyError, TypeError) as error:
        raise TokenizerError(f"the text is no tokenizer.json: {error!r}") from None
    if model.get("type") != "BPE":
        raise TokenizerError(f"models of the type {model.get('type')!r} are not supported; BPE is")
    vocabulary = _vocabulary(vocab, added, _spelling(whole), named or {}, add_bos=add_bos)
    ids = hidden_names(vocabulary, set(vocabulary.markup))
    model["vocab"] = ids
    model["merges"] = [merge for merge in map(_pair, model.get("merges") or []) if _usable(merge, ids)]
    words = {vocabulary.tokens[token] for token in vocabulary.words}
    whole["added_tokens"] = [token for token in added if token["content"] in words]
    whole["post_processor"] = whole["truncation"] = whole["padding"] = None
    return Tokenizer(vocabulary, Merger.from_str(json.dumps(whole)))


def _spelling(whole: Json) -> Spelling:
    decoder = cast("Json", whole.get("decoder") or {})
    parts = cast("list[Json]", decoder.get("decoders") or [])
    kinds = {part.get("type") for part in [decoder, *parts]}
    if _BYTE_DECODER in kinds:
        return Spelling(byte_letters=True)
    if _FALLBACK_DECODER in kinds:
        return Spelling(byte_letters=False)
    raise TokenizerError("its decoder is neither byte-level nor with byte fallback")


def _vocabulary(
    vocab: Mapping[str, int],
    added: list[Json],
    spelling: Spelling,
    named: Mapping[str, str],
    *,
    add_bos: bool,
) -> Vocabulary:
    ids = dict(vocab) | {token["content"]: token["id"] for token in added}
    tokens = [""] * (max(ids.values(), default=-1) + 1)
    for content, token in ids.items():
        tokens[token] = content
    kinds = {token: TokenKind.UNUSED for token, content in enumerate(tokens) if not content}
    if not spelling.byte_letters:
        kinds |= {token: TokenKind.BYTE for token, content in enumerate(tokens) if is_byte_token(content)}
    for token in added:
        kinds[token["id"]] = TokenKind.CONTROL if token["special"] else TokenKind.USER_DEFINED
    special = {name: ids.get(content) for name, content in named.items()}
    bos, eos = special.get("bos_token"), special.get("eos_token")
    ends = end_tokens(ids, [] if eos is None else [eos], None, added=kinds)
    for token in ends:
        kinds[token] = TokenKind.CONTROL
    return Vocabulary(
        tokens=tokens,
        spelling=spelling,
        kinds=kinds,
        bos_id=bos,
        eos_id=eos,
        pad_id=special.get("pad_token"),
        add_bos=add_bos and bos is not None,
        end_token_ids=ends,
        strip_after=frozenset(token["id"] for token in added if token.get("rstrip")),
    )


def _pair(merge: str | list[str]) -> tuple[str, str]:
    left, right = merge.split(" ", 1) if isinstance(merge, str) else merge
    return left, right


def _usable(merge: tuple[str, str], ids: Mapping[str, int]) -> bool:
    left, right = merge
    return left in ids and right in ids and left + right in ids
