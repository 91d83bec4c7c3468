"""Two retrievers as one: their rankings are fused, query by query.

    --retriever hybrid --retriever-args first=bm25 second=contriever
    --retriever hybrid --retriever-args first_args=k1=0.9,b=0.4 second_args=batch_size=64 fusion=weighted weight=0.3
    --retriever hybrid --retriever-args second=my.module:MyRetriever fusion=round_robin

Each member keeps its own index under its own key: what was indexed for ``--retriever contriever`` is not indexed again,
and a dense member is encoded in shards by itself (``--retriever contriever --until index --shard i/n``).

Reciprocal rank fusion (``rrf``) is that of Cormack, Clarke and Buettcher (2009), see ``retrievers.merge``. The weighted
sum of scores is that of Bruch, Gai and Ingber (2023): An analysis of fusion functions for hybrid retrieval,
https://doi.org/10.1145/3596512, with min-max scaling over the hits that were found.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import ClassVar

from corpora.base import Corpus
from corpora.fingerprint import describe, digest
from corpora.types import Query, Ranking
from retrievers import RETRIEVERS
from retrievers.base import Index, Retriever
from retrievers.merge import MERGES, reciprocal_rank_fusion, weighted_sum

FUSIONS = (*MERGES, "weighted")


class HybridIndex:
    """The indexes of the members."""

    def __init__(self, hybrid: Hybrid, indexes: Sequence[Index]) -> None:
        self._hybrid, self._indexes = hybrid, indexes

    def search(self, queries: Sequence[Query], k: int) -> list[Ranking]:
        """Rankings aligned with the queries: the first k of the members' ``depth`` best, fused."""
        found = [index.search(queries, self._hybrid.depth) for index in self._indexes]
        return [self._hybrid.fuse(rankings)[: max(k, 0)] for rankings in zip(*found, strict=True)]


class Hybrid:
    """Two retrievers, fused.

    Args:
        first: A retriever's name, an import path ``module:Class``, or (in Python) a retriever, a hybrid too.
        second: The same.
        fusion: ``rrf``; ``weighted`` (scores scaled to 0 ... 1); ``round_robin``; or ``max`` (only for scores of one
            scale, such as two lexical retrievers that differ in their analysis).
        weight: Of the first member's scores, 0 to 1; the second has the rest. For ``weighted`` only.
        constant: Of ``rrf``: the larger, the less the first places stand out.
        depth: How many hits of each member are fused, however many are asked for. So k cuts the ranking and never
            changes it, and there are at most two times as many hits.
        first_args: Arguments of the first member: ``key=value`` strings, on the command line with commas between them
            (``first_args=k1=0.9,b=0.4``; a part without ``=`` belongs to the value before it); or a mapping, which
            can hold anything.
        second_args: The same.

    Raises:
        ValueError: An argument has no such value, or no effect.
    """

    version: ClassVar[int] = 1

    def __init__(
        self,
        first: str | Retriever = "bm25",
        second: str | Retriever = "contriever",
        fusion: str = "rrf",
        weight: float = 0.5,
        constant: float = 60,
        depth: int = 1000,
        first_args: tuple[str, ...] | Mapping[str, object] = (),
        second_args: tuple[str, ...] | Mapping[str, object] = (),
    ) -> None:
        if fusion not in FUSIONS:
            raise ValueError(f"fusion {fusion!r} is unknown: expected one of {', '.join(FUSIONS)}")
        if not (0 <= weight <= 1 and 0 <= constant < math.inf and depth >= 1):
            raise ValueError(
                f"found weight={weight}, constant={constant}, depth={depth}: expected a weight from 0 to 1, "
                "a constant of 0 or more, a depth of 1 or more"
            )
        if weight != 0.5 and fusion != "weighted":
            raise ValueError(f"weight={weight} does nothing with fusion={fusion}: choose fusion=weighted")
        if constant != 60 and fusion != "rrf":
            raise ValueError(f"constant={constant} does nothing with fusion={fusion}: choose fusion=rrf")
        self.first = first
        self.second = second
        self.fusion = fusion
        self.weight = weight
        self.constant = constant
        self.depth = depth
        self.first_args = first_args
        self.second_args = second_args

    @cached_property
    def members(self) -> tuple[Retriever, Retriever]:
        """Both retrievers, made on first use.

        Raises:
            ValueError: Nothing of that name, wrong arguments, or no retriever.
        """
        return _member("first", self.first, self.first_args), _member("second", self.second, self.second_args)

    @property
    def one_pass(self) -> bool:
        """Whether a member reads the whole corpus in a search."""
        return any(getattr(member, "one_pass", False) for member in self.members)

    def pending(self, corpus: Corpus | None, passages: int) -> str | None:
        """What indexing still takes, of the members that can tell."""
        told = [member.pending(corpus, passages) for member in self.members if hasattr(member, "pending")]
        return "; ".join(each for each in told if each) or None

    @property
    def fingerprint(self) -> str:
        """A hash of the members' descriptions, their versions too, and of how they are fused."""
        how = {"fusion": self.fusion, "weight": self.weight, "constant": self.constant, "depth": self.depth}
        return digest({"version": self.version, "members": [describe(each) for each in self.members], **how})

    def index(self, corpus: Corpus) -> HybridIndex:
        """The members' own indexes of the corpus, each built where it is not there yet."""
        return HybridIndex(self, [member.index(corpus) for member in self.members])

    def prefetch(self) -> None:
        """Lets those members download that have something to download."""
        for member in self.members:
            prefetch = getattr(member, "prefetch", None)
            if callable(prefetch):
                prefetch()

    def fuse(self, rankings: Sequence[Ranking]) -> Ranking:
        """One ranking of all passages that are in the members' rankings of one query."""
        k = sum(map(len, rankings))
        if self.fusion == "weighted":
            return weighted_sum(rankings, (self.weight, 1 - self.weight), k)
        if self.fusion == "rrf":
            return reciprocal_rank_fusion(rankings, k, self.constant)
        return MERGES[self.fusion](rankings, k)


def _member(which: str, given: str | Retriever, arguments: tuple[str, ...] | Mapping[str, object]) -> Retriever:
    if isinstance(given, str):
        made = RETRIEVERS.create(given, arguments if isinstance(arguments, Mapping) else _pairs(arguments))
    elif arguments:
        raise ValueError(f"{which}_args: {which} is a {type(given).__name__} already: give it its arguments itself")
    else:
        made = given
    if not callable(getattr(made, "index", None)):
        raise ValueError(f"hybrid: {which} = {given!r} has no method index: it is no retriever")
    return made


def _pairs(parts: Sequence[str]) -> list[str]:
    """``key=value`` strings; a part without ``=`` is put back to the value that a comma parted it from."""
    pairs: list[str] = []
    for part in parts:
        if pairs and "=" not in part:
            pairs[-1] += f",{part}"
        else:
            pairs.append(part)
    return pairs
