"""A run that exists already, as a retriever: score, rerank and judge what another system found."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from corpora.base import Corpus
from corpora.files import read_run
from corpora.types import Query, Ranking, Run


class RunFileIndex:
    """The rankings of a run file."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def search(self, queries: Sequence[Query], k: int) -> list[Ranking]:
        """The first k hits that the run has for each query's question; none where it has no such question."""
        return [tuple(self._run.get(query.question_id, ())[: max(k, 0)]) for query in queries]


class RunFile:
    """Answers from a run file, by question and not by the query's text.

    Args:
        path: A run in any form that ``corpora.files.read_run`` reads. The order of its hits is kept.
    """

    version: ClassVar[int] = 1

    def __init__(self, path: Path) -> None:
        self.path = path

    def index(self, corpus: Corpus) -> RunFileIndex:
        """The run, read anew; any corpus will do, because nothing is searched in it.

        Raises:
            InputError: The file is no run; names the line.
        """
        return RunFileIndex(read_run(self.path).run)
