"""The merging of text into tokens, by the `tokenizers` library, without any control token.

The merger built here cannot produce the token of a mark: in its vocabulary the marks stand
under names that no text reaches. Marks are split off before, by `Marks`.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

from onward.rendering.pretokenizers import PRETOKENIZERS, Pretokenizer
from onward.rendering.vocabulary import (
    SPACE_MARK,
    MetadataReader,
    TokenizerError,
    TokenKind,
    Vocabulary,
    from_metadata,
)

_HIDDEN: Final = "\ufdd0\ufdd0{}"
"""A name of more than one letter that no merge makes."""


def build(metadata: Mapping[str, Any]) -> tuple[Vocabulary, Tokenizer]:
    """Vocabulary and merger of a GGUF; TokenizerError says what of it is not supported."""
    model = metadata.get("tokenizer.ggml.model")
    if model == "gpt2":
        return _byte_level(metadata)
    if model == "gemma4":
        return _spaced_merges(metadata)
    if model == "llama":
        return _sentencepiece(metadata)
    if model is None:
        raise TokenizerError("the file names no tokenizer (tokenizer.ggml.model is missing)")
    raise TokenizerError(
        f"tokenizers of the kind {model!r} are not supported; supported are gpt2 (byte-level BPE), "
        "llama (SentencePiece BPE) and gemma4"
    )


def _byte_level(metadata: Mapping[str, Any]) -> tuple[Vocabulary, Tokenizer]:
    name = metadata.get("tokenizer.ggml.pre") or "default"
    pretokenizer = PRETOKENIZERS.get(str(name))
    if pretokenizer is None:
        raise TokenizerError(
            f"the pre-tokenizer {str(name)[:40]!r} (tokenizer.ggml.pre) is not known; "
            f"known are {', '.join(PRETOKENIZERS)}"
        )
    vocabulary = from_metadata(metadata, add_bos=pretokenizer.add_bos, byte_letters=True)
    ids = reachable_ids(vocabulary)
    merger = Tokenizer(
        models.BPE(ids, _merges(metadata, ids), fuse_unk=False, ignore_merges=pretokenizer.whole_words)
    )
    split_words(merger, pretokenizer)
    return vocabulary, _with_words(merger, vocabulary)


def split_words(merger: Tokenizer, pretokenizer: Pretokenizer) -> None:
    """Give a byte-level merger its normalizer and pre-tokenizer."""
    if pretokenizer.compose:
        merger.normalizer = normalizers.NFC()
    splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in pretokenizer.patterns]
    letters = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    merger.pre_tokenizer = pre_tokenizers.Sequence([*splits, letters])


def _spaced_merges(metadata: Mapping[str, Any]) -> tuple[Vocabulary, Tokenizer]:
    # Gemma 4's files say that they add no BOS, wrongly.
    vocabulary = from_metadata(
        {**metadata, "tokenizer.ggml.add_bos_token": True}, add_bos=True, byte_letters=False
    )
    ids = reachable_ids(vocabulary)
    return vocabulary, _with_words(_spaced(vocabulary, ids, _merges(metadata, ids), prefix=False), vocabulary)


def _sentencepiece(metadata: Mapping[str, Any]) -> tuple[Vocabulary, Tokenizer]:
    vocabulary = from_metadata(metadata, add_bos=True, byte_letters=False)
    read = MetadataReader(metadata)
    scores = read.numbers("scores", len(vocabulary.tokens))
    ids = reachable_ids(vocabulary)
    merges = _merges_of_scores(vocabulary, ids, scores)
    prefix = read.flag("add_space_prefix", default=True)
    return vocabulary, _with_words(_spaced(vocabulary, ids, merges, prefix=prefix), vocabulary)


def _spaced(
    vocabulary: Vocabulary, ids: dict[str, int], merges: list[tuple[str, str]], *, prefix: bool
) -> Tokenizer:
    """A merger over plain text with a mark for spaces and tokens for lone bytes."""
    unknown = next(
        (name for name, token in ids.items() if vocabulary.kinds.get(token) is TokenKind.UNKNOWN), None
    )
    merger = Tokenizer(models.BPE(ids, merges, unk_token=unknown, fuse_unk=True, byte_fallback=True))
    replace = normalizers.Replace(" ", SPACE_MARK)
    merger.normalizer = (
        normalizers.Sequence([normalizers.Prepend(SPACE_MARK), replace]) if prefix else replace
    )
    return merger


def reachable_ids(vocabulary: Vocabulary) -> dict[str, int]:
    """Names of all tokens for the merger; what no text may reach stands under a hidden name."""
    broken = {token for token, text in enumerate(vocabulary.tokens) if _has_surrogates(text)}
    return hidden_names(vocabulary, broken | set(vocabulary.markup))


def hidden_names(vocabulary: Vocabulary, hidden: Collection[int]) -> dict[str, int]:
    """Names of all tokens; of those in `hidden`, and of empty and repeated ones, a hidden name."""
    ids: dict[str, int] = {}
    for token, text in enumerate(vocabulary.tokens):
        ids[_HIDDEN.format(token) if token in hidden or not text or text in ids else text] = token
    return ids


def _has_surrogates(text: str) -> bool:
    return not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text)


def _with_words(merger: Tokenizer, vocabulary: Vocabulary) -> Tokenizer:
    """Tokens added by hand that are ordinary text come before the merges."""
    words = [AddedToken(vocabulary.tokens[token], normalized=False) for token in vocabulary.words]
    if words:
        merger.add_tokens(words)  # pyright: ignore[reportUnknownMemberType]
    return merger


def _merges(metadata: Mapping[str, Any], ids: dict[str, int]) -> list[tuple[str, str]]:
    """The merges of the file, less those that no text of this vocabulary can use."""
    merges: list[tuple[str, str]] = []
    for line in MetadataReader(metadata).strings("merges"):
        cut = line.find(" ", 1)
        left, right = line[:cut], line[cut + 1 :]
        if left in ids and right in ids and left + right in ids:
            merges.append((left, right))
    return merges


def _merges_of_scores(
    vocabulary: Vocabulary, ids: dict[str, int], scores: Sequence[float]
) -> list[tuple[str, str]]:
    """Every way to make a token of two others, the token with the best score first."""
    merges: list[tuple[float, int, str, str]] = []
    for text, token in ids.items():
        if len(text) < 2 or token in vocabulary.kinds:
            continue
        merges.extend(
            (-scores[token], cut, text[:cut], text[cut:])
            for cut in range(1, len(text))
            if text[:cut] in ids and text[cut:] in ids
        )
    merges.sort(key=lambda merge: merge[0])
    return [(left, right) for _, _, left, right in merges]
