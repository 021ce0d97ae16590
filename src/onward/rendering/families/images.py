"""Content with images in it, for families that take images."""

from typing import Final

from onward.core.request import ImagePart, TextPart
from onward.rendering.families.conversation import Turn
from onward.rendering.prompt import PromptBuilder
from onward.rendering.renderer import ImageMarks

QWEN: Final = ImageMarks(before="<|vision_start|>", after="<|vision_end|>")


def write_content(turn: Turn, prompt: PromptBuilder, marks: ImageMarks) -> None:
    """Text and images in order, without the white space at both ends."""
    first, last = 0, len(turn.parts) - 1
    for place, part in enumerate(turn.parts):
        if isinstance(part, ImagePart):
            prompt.frame(marks.before).image(part).frame(marks.after)
            continue
        text = part.text
        if place == first:
            text = text.lstrip()
            first += not text  # what is nothing but white space does not shield what follows
        if place == last or not _shows(turn, place + 1):
            text = text.rstrip()
        prompt.text(text)


def _shows(turn: Turn, start: int) -> bool:
    """Whether there is more than white space from a part on."""
    return any(not isinstance(part, TextPart) or part.text.strip() for part in turn.parts[start:])
