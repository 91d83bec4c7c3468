"""Families of language models: models of one vendor's line, which learned from much the same and write alike."""

from __future__ import annotations

import re
from collections.abc import Mapping

FAMILIES: Mapping[str, str] = {
    "gpt": r"chatgpt|gpt[-_ ]?(?:[345](?!all)|oss)|o[134](?![a-z0-9])",  # not GPT-J, GPT-NeoX: other people's
    "claude": r"claude",
    "gemini": r"gemini|gemma",
    "llama": r"(?:code|tiny)?llama",
    "mistral": r"mistral|mixtral|ministral|magistral|codestral",
    "qwen": r"qwen|qwq",
    "deepseek": r"deepseek",
    "phi": r"phi(?=[-_ ]?[1-9])",
    "command": r"command[-_ ]?[ar](?![a-z])|c4ai|aya(?![a-z])",
    "grok": r"grok(?=[-_ ]?[1-9])",
}
"""Family -> how the names of its models, or a part of them, begin."""
_MAKERS: Mapping[str, str] = {"openai": "gpt", "anthropic": "claude", "google": "gemini", "meta": "llama"}
_PATTERNS = {family: re.compile(rf"(?<![a-z])(?:{pattern})") for family, pattern in FAMILIES.items()}


def family_of(model: str) -> str | None:
    """The family that the name of a model tells; None where it tells none, or several (a model distilled into another).

    ``gpt-4o-mini`` and ``openai/gpt-oss-20b`` are ``gpt``, ``mistralai/Mixtral-8x7B-Instruct-v0.1`` is ``mistral``.
    """
    name = model.lower()
    found = [family for family, pattern in _PATTERNS.items() if pattern.search(name)]
    return found[0] if len(found) == 1 else None


def family_named(family: str) -> str:
    """A family as somebody may write it (``GPT-4``, ``OpenAI``, ``Gemma``) under the name that it has here."""
    name = family.strip().lower()
    return family_of(name) or _MAKERS.get(name, name)
