"""The protocol of a judge: does a passage support a perspective?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

from evaluator.types import Judgement, Pair


@runtime_checkable
class Judge(Protocol):
    """Judges pairs. Judges never see the store: whoever needs labels wraps them (evaluator/labels.py).

    ``fingerprint`` names everything that can change an answer: weights, revision, adapter, dtype, parsing. A judge
    that does not define it gets one from its import path, ``version`` and constructor arguments.
    """

    def render(self, pair: Pair) -> str:
        """The judge's complete input for this pair; judgements are kept by fingerprint and this text."""
        ...

    def judge(self, pairs: Sequence[Pair]) -> Iterator[tuple[int, Judgement]]:
        """(position in ``pairs``, judgement), in any order, as they finish."""
        ...
