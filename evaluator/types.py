"""What the evaluator adds to the shared words: pairs to judge, judgements and scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from corpora.types import Passage, Perspective, Question


@dataclass(frozen=True, slots=True)
class Pair:
    """What a judge gets: does this passage support this perspective of this question?"""

    question: Question
    perspective: Perspective
    passage: Passage


def document(passage: Passage) -> str:
    """What a judge reads of a passage: its text, then its title where it has one (BERDS, https://arxiv.org/abs/2409.18110)."""
    return f"{passage.text} {passage.title}" if passage.title else passage.text


@dataclass(frozen=True, slots=True)
class Judgement:
    """A judge's answer to one pair; it carries no ids, because a shared text stands for many pairs.

    Attributes:
        status: ``ok``, or ``unparsed`` where the answer could not be read (never taken as No).
        probability: That the passage supports the perspective, in [0, 1]; None where unparsed.
        answer: The judge's raw answer, for reading.
        cost_usd: What the answer cost; None where unknown, 0.0 where free.
    """

    status: Literal["ok", "unparsed"]
    probability: float | None
    answer: str = ""
    cost_usd: float | None = None


@dataclass(frozen=True, slots=True)
class Scores:
    """One metric over a set of questions.

    Attributes:
        metric: Name as printed, for example ``MRecall@5``.
        mean: Mean over the questions where the metric is defined (macro mean where the task asks for it); NaN if none.
        low: Lower end of the 95 % bootstrap interval of the mean.
        high: Upper end of it.
        upper: The mean if every unknown label were a support; None where no such bound exists.
        detectable: The smallest difference between two systems that a test would find (see evaluator/statistics.py).
        n: Questions that count in the mean.
        n_undefined: Questions where the metric has no value.
        n_unjudged: Passages within the metric's depth whose labels are not all known, over all questions.
        per_question: question_id -> value, NaN where undefined.
    """

    metric: str
    mean: float
    low: float
    high: float
    upper: float | None
    detectable: float
    n: int
    n_undefined: int
    n_unjudged: int
    per_question: Mapping[str, float]
