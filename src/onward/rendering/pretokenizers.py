r"""How a text is cut into words before BPE merges them, by the names that GGUF files use.

A GGUF holds only a name (`tokenizer.ggml.pre`); what it means is known from the model's own
`tokenizer.json` and from llama.cpp's table (`src/llama-vocab.cpp`). Where both exist the
model's own wins, which matters for letter classes that llama.cpp approximates. Each pattern
splits the pieces that the pattern before it left.

Two names, ``qwen2`` and ``qwen35``, belong to models that compose characters first (NFC).
"""

from typing import Final

import msgspec

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
_QWEN35: Final = rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_TAIL}"
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
_DEEPSEEK_LETTERS: Final = (
    r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅ"
    r"ὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗ"
    r"Ａ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+"
)
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
            (r"[\r\n]", _DEEPSEEK_LETTERS, r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$", _CJK, r"\p{N}+")
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
    **_named(Pretokenizer((r"\d{1,3}(?=(?:\d{3})*\b)", _O200K)), "tiny_aya cohere2moe"),
    **_named(Pretokenizer((_TEKKEN,), whole_words=True, add_bos=True), "tekken"),
    **_named(Pretokenizer((_KIMI,)), "kimi-k2"),
    **_named(Pretokenizer((r"\p{N}+", r"(?=(\d{3})+(?!\d))")), "superbpe"),
    **_named(Pretokenizer((_BLOOM,)), "poro-chat bloom gpt3-finnish"),
    **_named(Pretokenizer((_BLOOM, r"\p{N}")), "viking"),
    **_named(Pretokenizer((r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]")), "default"),
}
"""By the name in the file. A file without a name means ``default``."""
