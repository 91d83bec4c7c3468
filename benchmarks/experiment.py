"""An experiment: a configuration with everything that it names, and what identifies it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from benchmarks.config import RunConfig, existing
from benchmarks.given import given_run
from benchmarks.tasks import RunQuestions, Task, task_fingerprint
from corpora import CORPORA, Corpus
from corpora.artefacts import content_hash
from corpora.files import RunFile
from corpora.fingerprint import describe
from corpora.types import Qrels, Query, Question
from evaluator.judges import Judge
from rerankers import Reranker
from retrievers import Retriever

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
        retriever: None where ``--run`` is given.
        run_path: The run file of ``--run``.
        reranker: None: the retriever's order stands.
        judge: None: gold labels.
    """

    config: RunConfig
    task: Task
    qrels: Qrels | None
    questions: tuple[Question, ...]
    not_applicable: tuple[str, ...]
    corpus: Corpus | None
    retriever: Retriever | None
    run_path: Path | None
    reranker: Reranker | None
    judge: Judge | None

    @property
    def scored(self) -> tuple[Question, ...]:
        """The questions that labels and scores are made for."""
        return self.questions[: self.config.limit]

    @property
    def searched(self) -> tuple[Question, ...]:
        """The questions that are searched: all of them where a reranker wants to see its whole group."""
        return self.questions if self.reranker is not None else self.scored

    @cached_property
    def queries(self) -> tuple[Query, ...]:
        """What the retriever gets, in the order of the questions."""
        return tuple(query for question in self.searched for query in queries(question, self.config.query))

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
            "merge": None if config.query == "question" else config.merge,
            "perspectives": config.perspectives,
            "limit": config.limit,
            "corpus": None
            if self.corpus is None
            else {"name": self.corpus_name, "fingerprint": self.corpus.fingerprint},
            "retriever": {"name": self.retriever_name, **self._source()},
            "depth": config.depth,
            "reranker": None if self.reranker is None else self._reranker(self.reranker),
            "judge": {"name": GOLD} if self.judge is None else {"name": config.judge, **describe(self.judge)},
            "stored_only": config.stored_only,
            "threshold": None if self.judge is None else config.threshold,
            "seed": config.seed,
        }

    def _reranker(self, reranker: Reranker) -> dict[str, object]:
        oracle = bool(getattr(reranker, "oracle", False))
        return {"name": self.config.reranker, "oracle": oracle, **describe(reranker)}

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
