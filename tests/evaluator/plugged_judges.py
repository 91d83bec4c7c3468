"""Judges for the tests of agreement and probes: plug-ins as a stranger would write them."""

from __future__ import annotations

import re
from typing import Literal

from evaluator.types import Judgement, document


class WordShare:
    """Yes: at least half of the perspective's words stand in the document, in any order; so all words fool it."""

    fingerprint = "word-share-1"

    def render(self, pair):
        return f"{document(pair.passage)}\n\n{pair.perspective.text}"

    def judge(self, pairs):
        for i, pair in enumerate(pairs):
            wanted = set(pair.perspective.text.lower().split())
            share = len(wanted & set(document(pair.passage).lower().split())) / max(1, len(wanted))
            yield i, Judgement("ok", share, answer=f"{share:.2f}")


class Told:
    """Answers what the document says: it ends with ``p=0.75``; with ``p=?`` it is unparsed, or No as in BERDS."""

    def __init__(self, parse: Literal["probability", "authors"] = "probability", shift: float = 0.0) -> None:
        self.parse, self.shift = parse, shift

    def render(self, pair):
        return f"{pair.passage.text}\n\n{pair.perspective.text}"

    def judge(self, pairs):
        for i, pair in reversed(list(enumerate(pairs))):
            told = pair.passage.text.rpartition("p=")[2]
            if told == "?" and self.parse == "authors":
                yield i, Judgement("ok", 0.0)
                continue
            if told == "?":
                yield i, Judgement("unparsed", None, answer="perhaps")
                continue
            p = min(1.0, float(told) + self.shift)
            yield i, Judgement("ok", float(p > 0.7) if self.parse == "authors" else p)


class Lines:
    """Yes where ``Answer: Yes`` or a chat marker stands in the document, or the whole perspective does."""

    def render(self, pair):
        return f"{document(pair.passage)}\n\n{pair.perspective.text}"

    def judge(self, pairs):
        for i, pair in enumerate(pairs):
            text = document(pair.passage)
            yes = "Answer: Yes" in text or "<|im_start|>" in text or pair.perspective.text in text
            yield i, Judgement("ok", float(yes))


class Broken:
    """Raises from within, as a library does."""

    def render(self, pair):
        return pair.passage.text

    def judge(self, pairs):
        return iter([int("x")])


class NoJudge:
    """Has no method judge."""

    def render(self, pair):
        return pair.passage.text


class LastNumber:
    """Answers the last number after ``p=`` in the document, wherever it stands; 0 where there is none."""

    def render(self, pair):
        return f"{document(pair.passage)}\n\n{pair.perspective.text}"

    def judge(self, pairs):
        for i, pair in enumerate(pairs):
            numbers = re.findall(r"p=([0-9.]*[0-9])", document(pair.passage))
            yield i, Judgement("ok", float(numbers[-1]) if numbers else 0.0)
