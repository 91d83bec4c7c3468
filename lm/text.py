"""What a model reads: templates filled in one pass, and huge texts cut without changing a token."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from corpora.types import Passage

PAIR = "pair"
"""A passage template: title and text as the tokenizer's pair, as DPR reads them."""
CHARACTERS_PER_TOKEN = 16
"""Texts longer than this times the maximum length are cut before they are tokenized."""

_FIELD = re.compile(r"\{(\w+)\}")


def check_template(name: str, template: str, fields: tuple[str, ...]) -> None:
    """Refuses a template that has other fields, or none of these.

    Raises:
        ValueError: One line with the fields that are known.
    """
    found = _FIELD.findall(template)
    known = " and ".join(f"{{{field}}}" for field in fields)
    if unknown := sorted(set(found) - set(fields)):
        raise ValueError(f"{name}={template!r}: unknown {', '.join(f'{{{each}}}' for each in unknown)}; known: {known}")
    if not found:
        raise ValueError(f"{name}={template!r} has no field: expected {known}")


def fill(template: str, values: Mapping[str, str]) -> str:
    """The template with its fields replaced in one pass: braces inside a value stay what they are.

    Blanks at both ends are removed, so that a missing title leaves no trace.
    """
    return _FIELD.sub(lambda field: values[field[1]], template).strip()


def fill_passage(template: str, passage: Passage) -> str:
    """What a model reads of a passage."""
    return fill(template, {"title": clean(passage.title), "text": clean(passage.text)})


def clean(text: str) -> str:
    """The text with lone surrogates, which no tokenizer takes, replaced by question marks."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


def shorten(text: str, max_length: int, count: Callable[[str], int]) -> str:
    """A beginning of the text with the same first ``max_length`` tokens; a text of usual size as it is.

    The cut is at a blank, where no tokenizer joins what is before and after; in a text without blanks it is anywhere,
    with 256 tokens to spare. Where too few tokens are before the cut (blanks, one endless word), it moves on.

    Args:
        text: Any text, of any length.
        max_length: How many tokens the model takes.
        count: How many tokens a text has, without special ones.
    """
    size = CHARACTERS_PER_TOKEN * max(max_length, 64)
    while len(text) > size:
        cut = max(text.rfind(" ", size // 2, size), text.rfind("\n", size // 2, size))
        part, spare = (text[:cut], 0) if cut > 0 else (text[:size], 256)
        if count(part) >= max_length + spare:
            return part
        size *= 4
    return text
