"""Texts of every kind, the same each time: what tokenizers disagree about."""

import random

_LETTERS = (
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ",
    "0123456789०१२٣٤²½Ⅷ",
    " \t\n\r\u00a0\u2003\u3000\x0b\x0c\x85\u2028",
    "'\"!?.,;:-_()[]{}<>|/\\@#$%^&*+=~`",
    "éèüßñçøåÆŒğışžđłŻÐþ",
    "αβγδεωΩЖдёйщЫשלוםعربيهندी",
    "日本語漢字かなカナ한국어中文，。！？「」",
    "😀🎉👩‍👩‍👧‍👦🇩🇪👍🏽❤️☃",
    "e\u0301a\u0308n\u0303\u200d\u200b\ufeff\u0300",
    "\x00\x01\x7f\u0378\ufffd\U0001f9ff\U00020000",
)
_WORDS = (
    "the", "The", " quick", " brown", "I'm", "we'll", "They'VE", "don't", "'s", " 's", "O'Reilly", "HelloWorld",
    "snake_case", "camelCase", "def f(x):\n    return x + 1\n", "\n\n", "    ", "\t\t", "  \n  ", "1234567890",
    "3.14159", "1,000,000", "2026-11-30", "https://example.com/a?b=c&d=1#e", "a@b.c", "#include <stdio.h>\n",
    '{"key": [1, 2, null]}', '<p class="x">hi</p>', "Überraschung", "naïve café", "Straße", "İstanbul",
    "привет мир", "Здравствуйте", "שלום", "مرحبا بالعالم", "नमस्ते", "สวัสดีครับ", "안녕하세요", "你好，世界", "日本語テキスト",
    "😀😀", "👩‍👩‍👧‍👦", "...", "!!!", "---", "===", "$$$", "x" * 30, " " * 17, "=" * 40, "\n" * 5, "\r\n", "\r\n\r\n",
)  # fmt: skip


def texts(count: int, seed: int, marks: list[str] | None = None) -> list[str]:
    """`count` texts; with `marks`, about half of them hold spellings of control tokens."""
    source = random.Random(seed)
    made = [_text(source) for _ in range(count)]
    if marks:
        made = [_strewn(source, text, marks) if source.random() < 0.5 else text for text in made]
    return made


def _text(source: random.Random) -> str:
    pieces = []
    for _ in range(source.randint(1, 12)):
        kind = source.random()
        if kind < 0.5:
            pieces.append(source.choice(_WORDS))
        elif kind < 0.6:
            pieces.append(
                chr(source.choice((source.randrange(0x20, 0x250), source.randrange(0xE000), 0x1F600)))
            )
        else:
            letters = source.choice(_LETTERS)
            pieces.append("".join(source.choice(letters) for _ in range(source.randint(1, 8))))
        if source.random() < 0.4:
            pieces.append(source.choice((" ", " ", "\n", "  ", "")))
    return "".join(piece for piece in pieces if not any("\ud800" <= letter <= "\udfff" for letter in piece))


def _strewn(source: random.Random, text: str, marks: list[str]) -> str:
    for _ in range(source.randint(1, 3)):
        mark = source.choice(marks)
        at = source.randint(0, len(text))
        text = text[:at] + mark[: source.choice((len(mark), len(mark), len(mark) - 1))] + text[at:]
    return text
