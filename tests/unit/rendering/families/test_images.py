"""Images of a chat: where the official templates have them, between the marks."""

from pathlib import Path

import pytest

from onward.core.failure import Failure
from onward.core.request import ChatRequest, ImagePart, Message, TextPart
from tests.unit.rendering.families import oracle

IMAGE = ImagePart("data:image/png;base64,AA==")
FAMILIES = {
    "qwen3.5": ("qwen3.5", "chat_template.jinja", "<|image_pad|>"),
    "qwen3.5-small": ("qwen3.5", "Qwen-Qwen3.5-0.8B.jinja", "<|image_pad|>"),
    "qwen3.6": ("qwen3.5", "Qwen-Qwen3.6-35B-A3B.jinja", "<|image_pad|>"),
    "gemma-4": ("gemma4", "chat_template.jinja", "<|image|>"),
    "gemma-4-e": ("gemma4", "google-gemma-4-E4B-it.jinja", "<|image|>"),
}
"""Folder, template, and the token that stands for an image in it."""
AROUND_THE_PAD = {"gemma4": ("<|image>", "<image|>")}
"""Marks that the model's processor puts around the pad, not its template."""
CONTENTS: dict[str, list] = {
    "alone": [IMAGE],
    "first": [IMAGE, TextPart("\n What is this? ")],
    "between": [TextPart("  See "), IMAGE, TextPart(" now \n")],
    "several": [TextPart("a"), IMAGE, IMAGE, TextPart("b"), IMAGE],
    "white space at the ends": [TextPart(" \n"), TextPart(" x"), IMAGE, TextPart(" y "), TextPart("\n ")],
    "no images": [TextPart(" a "), TextPart(" b ")],
}


def official_messages(messages: list[Message]) -> list[dict]:
    def values(part) -> dict:
        return {"type": "text", "text": part.text} if isinstance(part, TextPart) else {"type": "image"}

    return [
        {"role": one.role, "content": [values(part) for part in one.content]}
        if isinstance(one.content, list) and IMAGE in one.content
        else oracle.message_values(one)
        for one in messages
    ]


@pytest.mark.covers("O-2")
@pytest.mark.parametrize("title", CONTENTS)
@pytest.mark.parametrize("family", FAMILIES)
def test_images_stand_where_the_official_template_has_them(official: Path, family: str, title: str):
    folder, template, pad = FAMILIES[family]
    ours, theirs = oracle.tokenizer_of(official / folder)
    messages = [oracle.user(CONTENTS[title]), oracle.assistant("ok"), oracle.user(CONTENTS["between"])]
    source = (official / folder / template).read_text(encoding="utf-8")
    special = {"bos_token": "<bos>"} if folder == "gemma4" else {}
    text = oracle._compiled(source).render(
        messages=official_messages(messages), add_generation_prompt=True, **special
    )
    before, after = AROUND_THE_PAD.get(folder, ("", ""))
    expected = theirs.encode(text.replace(pad, before + pad + after), add_special_tokens=False).ids
    token = ours.control_id(pad)
    pads = [place for place, one in enumerate(expected) if one == token]
    prompt = oracle.native(family, ours).render(ChatRequest(model="m", messages=messages))
    assert prompt.ids == [one for one in expected if one != token]
    assert [place for place, _ in prompt.images] == [place - number for number, place in enumerate(pads)]


@pytest.mark.fault("D21")
def test_only_the_user_sends_images(official: Path):
    ours, _ = oracle.tokenizer_of(official / "qwen3.5")
    for role in ("system", "assistant"):
        message = Message(role=role, content=[TextPart("a"), IMAGE])
        with pytest.raises(Failure) as caught:
            oracle.native("qwen3.5", ours).render(ChatRequest(model="m", messages=[message]))
        assert caught.value.param == "messages[0].content[1]"
    smollm, _ = oracle.tokenizer_of(official / "smollm3")
    with pytest.raises(Failure, match="takes no images") as caught:
        oracle.native("smollm3", smollm).render(ChatRequest(model="m", messages=[oracle.user([IMAGE])]))
    assert caught.value.param == "messages[0].content[0]"
