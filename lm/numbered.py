"""Numbered texts in a prompt, one a line ("[1] one text"), and the order that a model's answer gives them.

``numbered(texts, max_words)`` writes the lines; ``read_order("The order is [2] > [1].", 2)`` is the order 1, 0.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from lm.structured import without_thought

CHARACTERS_PER_WORD = 12
"""A text is also cut behind so many characters per word allowed: some words have no end, some scripts no blanks."""

_HIDDEN = r"[\s\u00ad\u200b-\u200f\u2060-\u2064\ufeff]*"
"""White space, and characters that nobody sees."""
_MARKER = re.compile(rf"[\[\uff3b\u3010]{_HIDDEN}(\d[\d{_HIDDEN[1:-2]}]*)[\]\uff3d\u3011]")
_BRACKETED = re.compile(r"\[\s*(\d{1,6})\s*\]")
_BARE = re.compile(r"(?<![\d.])\d{1,6}(?!\d|\.\d)")
_COUNTER = re.compile(r"^[ \t]*(\d{1,6})[.):][ \t]+(?=[^\s>])", re.MULTILINE)
_NAMES = re.compile(r"\b(?:passages?|documents?|docs?|nos?|numbers?)\b", re.IGNORECASE)
_LETTER = re.compile(r"[^\W\d_]")


def numbered(texts: Sequence[str], max_words: int) -> str:
    """One line per text, behind its number from 1 in square brackets.

    A text becomes one line, is cut to its first words, and numbers in square brackets in it are put in round ones, so
    that nothing in a text looks like another text's number.
    """
    return "\n".join(f"[{i}] {one_line(text, max_words)}".rstrip() for i, text in enumerate(texts, 1))


def one_line(text: str, max_words: int) -> str:
    """The first words of a text, one blank between them, without anything that looks like a number of ``numbered``."""
    most = max_words * CHARACTERS_PER_WORD
    words = text.lstrip()[: 2 * most].split()[:max_words]  # runs of blanks count less than words, but not for ever
    return _MARKER.sub(r"(\1)", " ".join(words)[:most].rstrip())


@dataclass(frozen=True, slots=True)
class Order:
    """What an answer says of the texts 1 to n.

    Attributes:
        positions: From 0, in the order in which they are named, each once; empty: nothing can be read.
        whole: Whether all were named, each exactly once, and nothing that is not there.
    """

    positions: list[int]
    whole: bool


def read_order(text: str, n: int) -> Order:
    """The order in which an answer names the numbers 1 to n.

    The longest row of numbers counts, that is numbers with no word between them; of equal ones the last, since answers
    come after reasons. Numbers in square brackets go before bare ones; where they only stand singly, all of them count
    in turn. Bare numbers in a sentence may count anything: a row of them needs half of the numbers, or to be all.
    """
    answer = _without_counters(without_thought(text))
    rows = _rows(answer, _BRACKETED)
    if any(_known(row, n) for row in rows):
        row = _longest(rows, n)
        return _order(row if len(_known(row, n)) > 1 else [number for each in rows for number in each], n)
    answer = _NAMES.sub(" ", answer)
    row = _longest(_rows(answer, _BARE), n)
    named = len(_known(row, n))
    enough = (named > 1 and 2 * named >= n) or _BARE.fullmatch(answer.strip(" .\n\t"))
    return _order(row if enough else [], n)


def _order(numbers: Sequence[int], n: int) -> Order:
    known = _known(numbers, n)
    return Order([number - 1 for number in known], len(known) == len(numbers) == n)


def _known(numbers: Sequence[int], n: int) -> list[int]:
    return [number for number in dict.fromkeys(numbers) if 1 <= number <= n]


def _longest(rows: Sequence[list[int]], n: int) -> list[int]:
    return max(reversed(rows), key=lambda row: len(_known(row, n)), default=[])


def _rows(text: str, number: re.Pattern[str]) -> list[list[int]]:
    """The numbers by rows: a new row begins where a letter stands between two."""
    rows: list[list[int]] = []
    end = 0
    for found in number.finditer(text):
        if not rows or _LETTER.search(text, end, found.start()):
            rows.append([])
        end = found.end()
        rows[-1].append(int(found[found.lastindex or 0]))
    return rows


def _without_counters(text: str) -> str:
    """The text without the numbers 1., 2. ... of a list's lines, which are no answers."""
    counters = [int(each) for each in _COUNTER.findall(text)]
    return _COUNTER.sub("", text) if len(counters) > 1 and counters == list(range(1, len(counters) + 1)) else text
