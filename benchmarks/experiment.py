"""An experiment: a configuration with everything that it names, and what identifies it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from benchmarks.config import RunConfig, existing
from benchmarks.expansion import expansions, written
from benchmarks.given import given_run
from benchmarks.tasks import RunQuestions, Task, task_fingerprint
from corpora import CORPORA, Corpus
from corpora.artefacts import content_hash
from corpora.files import RunFile
from corpora.fingerprint import describe
from corpora.types import Qrels, Query, Question
from evaluator.judges import Judge
from rerankers import Reranker
from retrievers import Expander, Retriever

GOLD = "gold"


@dataclass(frozen=True)
class Experiment:
    """A configuration with everything that it names.

    Attributes:
        config: What was asked for.
        task: The question set.
        qrels: Gold labels (``--qrels`` before the task's own); None where there are none.
        questions: Those that are run: of the split, fit for ``--query``; ``--limit`` is not yet applied.
        not_applicable: Questions of the split that lack one of the stances that ``--query`` asks for.
        corpus: None where nothing but a run file and gold labels is needed.
        expander: None: the questions alone are searched.
        retriever: None where ``--run`` is given.
        run_path: The run file of ``--run``.
        rerankers: One after the other; none: the retriever's order stands.
        judge: None: gold labels.
        tuned: What the choice of ``--tuned`` was made on; None without one.
    """

    config: RunConfig
    task: Task
    qrels: Qrels | None
    questions: tuple[Question, ...]
    not_applicable: tuple[str, ...]
    corpus: Corpus | None
    expander: Expander | None
    retriever: Retriever | None
    run_path: Path | None
    rerankers: tuple[Reranker, ...]
    judge: Judge | None
    tuned: dict[str, object] | None = None

    @property
    def scored(self) -> tuple[Question, ...]:
        """The questions that labels and scores are made for."""
        return self.questions[: self.config.limit]

    @property
    def searched(self) -> tuple[Question, ...]:
        """The questions that are searched: all of them where a reranker wants to see its whole group.

        A reranker that declares ``per_question`` does not: then ``--limit`` holds for searching and reranking too.
        """
        alone = all(getattr(reranker, "per_question", False) for reranker in self.rerankers)
        return self.scored if alone else self.questions

    @cached_property
    def own_queries(self) -> tuple[Query, ...]:
        """The queries that the questions are asked with, before any expansion, in their order."""
        return tuple(query for question in self.searched for query in queries(question, self.config.query))

    @cached_property
    def expansions(self) -> dict[str, tuple[Query, ...]]:
        """query_id of each own query -> what the expander wrote for it; made on first use, empty without one."""
        return {} if self.expander is None else expansions(self.expander, str(self.config.expander), self.own_queries)

    @cached_property
    def merged_queries(self) -> tuple[Query, ...]:
        """The queries whose rankings make the run."""
        if self.expander is None or self.config.expand_for == "aspects":
            return self.own_queries
        return tuple(query for own in self.own_queries for query in self.expansions[own.query_id])

    @cached_property
    def aspects(self) -> dict[str, tuple[Query, ...]]:
        """question_id -> what rerankers get as its aspects."""
        if self.expander is None or self.config.expand_for == "search":
            return {}
        return {own.question_id: written(self.expansions[own.query_id]) for own in self.own_queries}

    @cached_property
    def queries(self) -> tuple[Query, ...]:
        """What the retriever gets: the merged queries, and aspects where a reranker wants rankings of them."""
        found = {query.query_id: query for query in self.merged_queries}
        if any(getattr(reranker, "aspect_rankings", False) for reranker in self.rerankers):
            found |= {query.query_id: query for aspects in self.aspects.values() for query in aspects}
        return tuple(found.values())

    @cached_property
    def given(self) -> RunFile:
        """The run of ``--run``, its passages matched to the ids of the gold labels."""
        if self.run_path is None:
            raise TypeError("no --run is given")
        questions = None if isinstance(self.task, RunQuestions) else self.task.questions
        return given_run(self.run_path, questions, self.corpus, None if self.judge else self.qrels)

    @cached_property
    def identity(self) -> dict[str, object]:
        """Everything that the numbers depend on, as a JSON value without any path: the stamp in scores.json."""
        config = self.config
        return {
            "task": {
                "name": self.task.name,
                "fingerprint": task_fingerprint(self.task),
                "split": self.split,
                "macro": self.task.macro,
            },
            "qrels": self.qrels_fingerprint,
            "query": config.query,
            "merge": config.merge if config.query != "question" or self._merges_expansions else None,
            "perspectives": config.perspectives,
            "limit": config.limit,
            "corpus": None
            if self.corpus is None
            else {"name": self.corpus_name, "fingerprint": self.corpus.fingerprint},
            "expander": None
            if self.expander is None
            else {"name": config.expander, "for": config.expand_for, **describe(self.expander)},
            "retriever": {"name": self.retriever_name, **self._source()},
            "depth": config.depth,
            "reranker": self._rerankers(),
            "tuned": self.tuned,
            "judge": {"name": GOLD} if self.judge is None else {"name": config.judge, **describe(self.judge)},
            "stored_only": config.stored_only,
            "threshold": None if self.judge is None else config.threshold,
            "seed": config.seed,
        }

    @property
    def _merges_expansions(self) -> bool:
        return self.expander is not None and self.config.expand_for != "aspects"

    def _rerankers(self) -> object:
        """None, one description, or a list of them."""
        found = [
            {"name": name, "oracle": bool(getattr(reranker, "oracle", False)), **describe(reranker)}
            for name, reranker in zip(self.config.reranker, self.rerankers, strict=True)
        ]
        return found if len(found) > 1 else found[0] if found else None

    def _source(self) -> dict[str, object]:
        if self.run_path is not None:
            return describe(RunPath(self.run_path))
        return describe(self.retriever)

    @property
    def split(self) -> str:
        """The split by name; ``all`` where none is chosen."""
        return chosen_split(self.task, self.config.split)

    @property
    def qrels_fingerprint(self) -> str | None:
        """Of the file of ``--qrels``; None where the task's own are used."""
        return None if self.config.qrels is None else content_hash(existing(self.config.qrels, "--qrels"))

    @property
    def corpus_name(self) -> str:
        """Names the folder of the results."""
        given = self.config.corpus or getattr(self.task, "corpus", None)
        if self.corpus is None or given is None:
            return "none"
        if given in CORPORA.names() or ":" in given:
            return given
        path = Path(given).resolve()
        return path.name if path.is_dir() else path.parent.name

    @property
    def retriever_name(self) -> str:
        """Names the result; ``runfile`` for ``--run``."""
        return "runfile" if self.run_path is not None else self.config.retriever

    @property
    def system(self) -> tuple[str, ...]:
        """The names of what makes the ranking, in the order of the way: expander, retriever, rerankers."""
        first = (str(self.config.expander),) if self.expander is not None else ()
        return (*first, self.retriever_name, *self.config.reranker)


@dataclass(frozen=True)
class RunPath:
    """A run file as a part of the stamp: it counts by its content."""

    path: Path


def queries(question: Question, kind: str) -> tuple[Query, ...]:
    """The queries of a question: its own text, or the texts of all its perspectives of one stance."""
    if kind == "question":
        return (Query(question.question_id, question.question_id, question.text),)
    return tuple(
        # Numbered: two ids joined by a sign that may stand in them would not be unique.
        Query(f"{question.question_id}:{i}", question.question_id, p.text, kind)
        for i, p in enumerate(question.perspectives)
        if p.stance == kind
    )


def chosen_split(task: Task, asked: str | None) -> str:
    """The split by name: what was asked for, else ``test`` if the task has one, else ``all``.

    Raises:
        ValueError: The task has no such split.
    """
    splits = sorted({question.split for question in task.questions if question.split is not None})
    if asked is None:
        return "test" if "test" in splits else "all"
    if asked != "all" and asked not in splits:
        raise ValueError(f"--split {asked}: task {task.name!r} has {', '.join([*splits, 'all'])}")
    return asked
