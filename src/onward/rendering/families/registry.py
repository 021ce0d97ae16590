"""Every family, and the choice among them."""

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from onward.rendering.families import (
    deepseek_v4,
    deepseek_v31,
    deepseek_v32,
    gemma,
    glm,
    gpt_oss,
    inkling,
    kimi,
    llama3,
    minimax,
    mistral,
    qwen3,
    qwen3_coder,
    qwen35,
    smollm,
)
from onward.rendering.families.family import Family
from onward.rendering.tokenizer import Tokenizer

ALL: Final[tuple[Family, ...]] = (
    *qwen3.FAMILIES,
    *qwen35.FAMILIES,
    *smollm.FAMILIES,
    *gpt_oss.FAMILIES,
    *llama3.FAMILIES,
    *mistral.FAMILIES,
    *gemma.FAMILIES,
    *deepseek_v31.FAMILIES,
    *kimi.FAMILIES,
    *qwen3_coder.FAMILIES,
    *glm.FAMILIES,
    *minimax.FAMILIES,
    *deepseek_v32.FAMILIES,
    *deepseek_v4.FAMILIES,
    *inkling.FAMILIES,
)
"""In the order in which repo IDs and templates are tried."""

BY_NAME: Final = {family.name: family for family in ALL}

_ALIASES: Final = {
    "deepseek-v3": "deepseek-v3.1",
    "gpt-oss-harmony": "gpt-oss",
    "harmony": "gpt-oss",
    "glm-4.6": "glm-4.5",
    "glm-5": "glm-4.7",
    "kimi-k2.6": "kimi-k2.5",
    "llama3.3": "llama3.1",
    "mistral": "mistral-small-3.2",
    "mistral-tekken": "mistral-small-3.2",
    "qwen3-2507-instruct": "qwen3-instruct",
    "qwen3-2507-thinking": "qwen3-thinking",
}
"""Other names that people use; also the versions that have the format of another one."""

_ORGANISATIONS: Final = ("Qwen", "zai-org", "MiniMaxAI")
"""Whose names may be left out of a repo ID."""


class UnknownFamilyError(ValueError):
    """A name that is no family; the message lists those that are."""


class Choice(msgspec.Struct, frozen=True):
    """A family, and why; None: the model's own template."""

    family: Family | None
    reason: str


def named(name: str) -> Family:
    """The family of a name (dashes, dots and case aside) or of a public repo ID.

    Raises `UnknownFamilyError`.
    """
    plain = _plain(name)
    family = BY_NAME.get(name) or _BY_PLAIN_NAME.get(plain) or of_repo(name)
    if family is None and "/" not in name:
        tried = (of_repo(f"{organisation}/{name}") for organisation in _ORGANISATIONS)
        family = next((found for found in tried if found is not None), None)
    if family is None:
        known = ", ".join(BY_NAME)
        raise UnknownFamilyError(f"{name!r} is no family and no repo ID of one; families are {known}")
    return family


def _plain(name: str) -> str:
    """A name without what people write in several ways: case, dashes, dots."""
    return re.sub(r"[-_. ]", "", name.lower())


_BY_PLAIN_NAME: Final = {_plain(alias): BY_NAME[name] for alias, name in _ALIASES.items()} | {
    _plain(name): family for name, family in BY_NAME.items()
}


def of_repo(repo: str) -> Family | None:
    """The family of a public repo ID."""
    for family in ALL:
        if any(re.fullmatch(pattern, repo, re.IGNORECASE) for pattern in family.repos):
            return family
    return None


def choose(
    tokenizer: Tokenizer, *, name: str = "auto", repo: str | None = None, template: str | None = None
) -> Choice:
    """The family of a model: by its config's word, its repo ID, or its chat template, in this order.

    A family whose control tokens the vocabulary lacks is chosen by nobody but the config.
    Raises `UnknownFamilyError` for a name that is none, or that cannot be this model's.
    """
    if name not in ("", "auto", "template"):
        family = named(name)
        lacking = lacks(family, tokenizer)
        if lacking:
            raise UnknownFamilyError(
                f"the model's vocabulary lacks {', '.join(lacking)}, which {family.name} needs"
            )
        return Choice(family, "named by the config")
    if name == "template":
        return Choice(None, "the config asks for the model's own chat template")
    tried = ""
    if repo:
        family = of_repo(repo)
        if family is not None:
            lacking = lacks(family, tokenizer)
            if not lacking:
                return Choice(family, f"the repo ID {repo}")
            tried = f"; {family.name}, by the repo ID, needs {', '.join(lacking)}, which it lacks"
    if template:
        family = of_template(template, tokenizer)
        if family is not None:
            return Choice(family, "what the model's chat template holds" + tried)
    return Choice(None, "no family has this model's repo ID or chat template" + tried)


def of_template(template: str, tokenizer: Tokenizer) -> Family | None:
    """The family that a chat template writes."""
    for family in ALL:
        if not family.template or lacks(family, tokenizer):
            continue
        holds = all(text in template for text in family.template)
        if holds and not any(text in template for text in family.template_lacks):
            return family
    return None


def lacks(family: Family, tokenizer: Tokenizer) -> Sequence[str]:
    """The family's control tokens that a vocabulary does not have."""
    return [mark for mark in family.marks if tokenizer.control_id(mark) is None]
