"""The protocol of a retriever. A retriever needs this file and ``corpora.types``, and nothing else.

A class of about 30 lines is enough: keyword arguments with defaults, stored under their own names; no
download, file or GPU in the constructor; loading on first use. Optional class attributes:

* ``version: ClassVar[int] = 1``: raise it when the same arguments begin to give other results. (While a class is not
  part of this project, the source of its module counts as well, so that changing it is enough.)
* ``packages: ClassVar[tuple[str, ...]] = ()``: libraries whose version the results depend on.
* ``runtime_args: ClassVar[tuple[str, ...]] = ()``: arguments that do not change results (threads, batch size).
* ``index_args: ClassVar[tuple[str, ...]]``: the arguments that an index depends on (default: all).
* ``local_scores: ClassVar[bool] = False``: a passage's score depends on query and passage alone, so that
  parts of a corpus may be searched apart (dense retrievers; not BM25).
* ``one_pass: ClassVar[bool] = False``: a search reads the whole corpus, so it is asked for all queries at once.

And an optional method, for plans (``--dry-run``): ``pending(corpus, passages) -> str | None`` says in one line what
indexing still costs (None: nothing); ``corpus`` is None while it is not there yet, ``passages`` its expected size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from corpora.base import Corpus
from corpora.types import Query, Ranking


@runtime_checkable
class Index(Protocol):
    """A corpus made searchable."""

    def search(self, queries: Sequence[Query], k: int) -> list[Ranking]:
        """Rankings aligned with the queries: at most k hits each, best first, ties by passage id.

        Fewer than k where the corpus is small or nothing matches.
        """
        ...


@runtime_checkable
class Retriever(Protocol):
    """Makes an index from a corpus."""

    def index(self, corpus: Corpus) -> Index:
        """The index of the corpus: built, or opened where it was built before."""
        ...
