"""The words that everybody shares: frozen records without any input or output.

Identifiers are ``str``, always; records are joined by identifier, never by text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Stance: TypeAlias = Literal["supporting", "opposing"]


@dataclass(frozen=True, slots=True)
class Perspective:
    """One view that passages can support (a subtopic in TREC's words)."""

    perspective_id: str
    text: str
    stance: Stance | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """One question with its known perspectives (a topic in TREC's words).

    Attributes:
        question_id: Unique over the whole task, for example ``arguana-750``.
        text: The question itself.
        perspectives: The gold perspectives, in the order of the data set.
        group: The set that the question belongs to; macro averages give groups equal weights.
        split: For example ``dev`` or ``test``; None where the task has no splits.
    """

    question_id: str
    text: str
    perspectives: tuple[Perspective, ...] = ()
    group: str = "all"
    split: str | None = None


@dataclass(frozen=True, slots=True)
class Query:
    """What a retriever gets: text to search for, and nothing of the gold annotation.

    Attributes:
        query_id: Unique over the run.
        question_id: The question that this query was made for; several queries may share it.
        text: What is searched for.
        origin: ``question``, ``supporting``, ``opposing`` or ``expansion:<i>``.
    """

    query_id: str
    question_id: str
    text: str
    origin: str = "question"


@dataclass(frozen=True, slots=True)
class Passage:
    """The unit that is retrieved; a document is the page that it came from."""

    passage_id: str
    text: str
    title: str = ""
    url: str = ""


@dataclass(frozen=True, slots=True)
class Span:
    """Where a corpus lies in the whole that it is a part of.

    Attributes:
        fingerprint: Of the whole corpus.
        start: The whole's row that is this corpus' first.
        stop: The whole's row after its last.
    """

    fingerprint: str
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Hit:
    """One retrieved passage; a higher score is better."""

    passage_id: str
    score: float


Ranking: TypeAlias = tuple[Hit, ...]
"""Hits of one query, best first, each passage once; the position decides, not the score."""

Run: TypeAlias = Mapping[str, Ranking]
"""One system over one task: question_id -> ranking."""

Qrels: TypeAlias = Mapping[str, Mapping[str, Mapping[str, int]]]
"""Gold labels: question_id -> perspective_id -> passage_id -> relevance (above 0: supports)."""


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """What a reranker gets for one question.

    Attributes:
        query: The query of the question.
        ranking: The retriever's ranking, n hits.
        passages: The n passages of these hits, in the same order.
        aspects: Queries from an expander.
        aspect_rankings: The retriever's ranking for each aspect.
        labels: int8 (n, m), which passage supports which perspective, -1 unknown; only for rerankers
            that declare themselves oracles, else None.
    """

    query: Query
    ranking: Ranking
    passages: tuple[Passage, ...]
    aspects: tuple[Query, ...] = ()
    aspect_rankings: tuple[Ranking, ...] = ()
    labels: NDArray[np.int8] | None = None
