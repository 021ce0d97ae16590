r"""How a text is cut into words before BPE merges them, by the names that GGUF files use.

A GGUF holds only a name (`tokenizer.ggml.pre`); what it means is known from the model's own
`tokenizer.json` and from llama.cpp's table (`src/llama-vocab.cpp`). Where both exist the
model's own wins, which matters for letter classes that llama.cpp approximates. Each pattern
splits the pieces that the pattern before it left.

Every pattern takes time linear in the text. Names whose patterns do not (``tiny_aya``,
``superbpe``: they look ahead over all digits at every digit) are left out.

Two names, ``qwen2`` and ``qwen35``, belong to models that compose characters first (NFC).
"""

from typing import Final

import msgspec


def _ranges(ranges: str) -> str:
    """Hexadecimal ranges as the inside of a character class."""
    return "".join("-".join(rf"\x{{{bound}}}" for bound in part.split("-")) for part in ranges.split())


_CONTRACTIONS: Final = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_TAIL: Final = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_SIGNS: Final = r" ?[^\s\p{L}\p{N}]+"
_CASED: Final = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+%s"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*%s"
)
_CASED_CONTRACTED: Final = _CASED % (_CONTRACTIONS + "?", _CONTRACTIONS + "?")
_HAN_CASED: Final = (
    r"[\p{Han}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
    rf"{_CONTRACTIONS}?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*"
    rf"{_CONTRACTIONS}?"
)

GPT2: Final = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

_CL100K: Final = rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}|{_SIGNS}[\r\n]*|{_TAIL}"
_QWEN2: Final = rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}|{_SIGNS}[\r\n]*|{_TAIL}"
_QWEN35: Final = (
    rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
    rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_TAIL}"
)
_UFAKZEKA: Final = rf"[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}|{_SIGNS}[\r\n]*|{_TAIL}"
_SEED_CODER: Final = (
    rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_TAIL}"
)
_O200K: Final = rf"{_CASED_CONTRACTED}|\p{{N}}{{1,3}}|{_SIGNS}[\r\n/]*|{_TAIL}"
_TEKKEN: Final = rf"{_CASED % ('', '')}|\p{{N}}|{_SIGNS}[\r\n/]*|{_TAIL}"
_KIMI: Final = rf"{_HAN_CASED}|\p{{N}}{{1,3}}|{_SIGNS}[\r\n]*|{_TAIL}"
_DIGITS_3: Final = r"\p{N}{1,3}"
_HAN_KANA: Final = "[一-龥぀-ゟ゠-ヿ]+"
_DEEPSEEK_V3: Final = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_TAIL}"
)
_CASED_LETTERS: Final = (
    "0041-005A 0061-007A 00B5 00C0-00D6 00D8-00F6 00F8-01BA 01BC-01BF 01C4-0293 0295-02AF 0370-0373 "
    "0376 0377 037B-037D 037F 0386 0388-038A 038C 038E-03A1 03A3-03F5 03F7-0481 048A-052F 0531-0556 "
    "10A0-10C5 13A0-13F5 13F8-13FD 1C90-1CBA 1CBD-1CBF 1D00-1D2B 1D6B-1D77 1D79-1D9A 1E00-1F15 "
    "1F18-1F1D 1F20-1F45 1F48-1F4D 1F50-1F57 1F59 1F5B 1F5D 1F5F-1F7D 1F80-1FB4 1FB6-1FBC 1FBE "
    "1FC2-1FC4 1FC6-1FCC 1FD0-1FD3 1FD6-1FDB 1FE0-1FEC 1FF2-1FF4 1FF6-1FFC 2102 2107 210A-2113 2115 "
    "2119-211D 2124 2126 2128 212A-212D 212F-2134 2139 213C-213F 2145-2149 214E 2183 2184 2C00-2C7B "
    "2C7E-2CE4 2CEB-2CEE 2CF2 2CF3 A640-A66D A680-A69B A722-A76F A771-A787 A78B-A78E AB70-ABBF "
    "FB00-FB06 FB13-FB17 FF21-FF3A FF41-FF5A 10400-1044F 104B0-104D3 104D8-104FB 10C80-10CB2 "
    "10CC0-10CF2 118A0-118DF 1E900-1E943"
)
"""Letters with upper and lower case, as ranges of code points."""

_DEEPSEEK_LETTERS: Final = rf"\s?[{_ranges(_CASED_LETTERS)}]+"
_CJK: Final = "[一-龥ࠀ-一가-퟿]+"
_BLOOM: Final = r" ?[^(\s|.,!?…。，、।۔،)]+"


class Pretokenizer(msgspec.Struct, frozen=True):
    """The words of a text, and two rules that come with the name."""

    patterns: tuple[str, ...]
    whole_words: bool = False
    """A word that is itself a token is that token, whatever the merges say."""
    add_bos: bool = False
    """Whether prompts begin with BOS where the file does not say."""
    compose: bool = False
    """Whether the text is brought to NFC first."""


def _named(pretokenizer: Pretokenizer, names: str) -> dict[str, Pretokenizer]:
    return dict.fromkeys(names.split(), pretokenizer)


PRETOKENIZERS: Final[dict[str, Pretokenizer]] = {
    **_named(
        Pretokenizer((_CL100K,), whole_words=True, add_bos=True),
        "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
    ),
    **_named(Pretokenizer((_CL100K,)), "dbrx smaug-bpe chatglm-bpe"),
    **_named(Pretokenizer((_CL100K,), whole_words=True), "glm4 glm5"),
    **_named(Pretokenizer((_QWEN2,), compose=True), "qwen2"),
    **_named(Pretokenizer((_QWEN35,), compose=True), "qwen35"),
    **_named(
        Pretokenizer((_QWEN2,)),
        "deepseek-r1-qwen kormo f2llmv2 stablelm2 megrez hunyuan solar-open grok-2",
    ),
    **_named(Pretokenizer((_UFAKZEKA,)), "ufakzeka"),
    **_named(Pretokenizer((_SEED_CODER,)), "seed-coder"),
    **_named(Pretokenizer((_DIGITS_3, _HAN_KANA, _DEEPSEEK_V3)), "deepseek-v3 hunyuan-dense joyai-llm hy_v4"),
    **_named(
        Pretokenizer(
            (
                r"[\r\n]",
                _DEEPSEEK_LETTERS,
                r"\s?[!-/:-~！-／：-～‘-‟　-。]+",
                r"(?<!\s)\s++$",
                _CJK,
                r"\p{N}+",
            )
        ),
        "deepseek-llm",
    ),
    **_named(Pretokenizer((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _CJK, r"\p{N}")), "deepseek-coder"),
    **_named(Pretokenizer((r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]")), "falcon"),
    **_named(
        Pretokenizer((r"\p{N}", GPT2)),
        "smollm starcoder refact command-r codeshell exaone minerva-7b mellum2",
    ),
    **_named(
        Pretokenizer((GPT2,)),
        "gpt-2 phi-2 gigachat a.x-4.0 mellum mpt olmo jais trillion granite-docling exaone4",
    ),
    **_named(Pretokenizer((_O200K,)), "gpt-4o llama4 kanana2 talkie minimax-m2"),
    **_named(Pretokenizer((_TEKKEN,), whole_words=True, add_bos=True), "tekken"),
    **_named(Pretokenizer((_KIMI,)), "kimi-k2"),
    **_named(Pretokenizer((_BLOOM,)), "poro-chat bloom gpt3-finnish"),
    **_named(Pretokenizer((_BLOOM, r"\p{N}")), "viking"),
    **_named(Pretokenizer((r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]")), "default"),
}
"""By the name in the file. A file without a name means ``default``."""
