"""A RunConfig's words become objects: task, questions, corpus, plug-ins. Every mistake ends in one line.

Nothing heavy happens here: plug-ins load on first use, so that a plan can be made without running anything.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar, cast

from benchmarks.config import RunConfig, existing
from benchmarks.given import given_run
from benchmarks.tasks import TASKS, Folder, QrelsOnly, RunQuestions, Task, task_fingerprint
from corpora import CORPORA, Corpus
from corpora.artefacts import content_hash
from corpora.files import RunFile, read_qrels
from corpora.fingerprint import describe
from corpora.registry import Registry
from corpora.types import Qrels, Query, Question
from evaluator.judges import JUDGES, Judge
from rerankers import RERANKERS, Reranker
from retrievers import RETRIEVERS, Retriever

T = TypeVar("T")
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


def resolve(config: RunConfig) -> Experiment:
    """The experiment that a configuration describes.

    Raises:
        ValueError: Something named is not there or does not fit together; the message is one line.
    """
    task = _task(config)
    _check_questions(task)
    qrels = task.qrels if config.qrels is None else read_qrels(existing(config.qrels, "--qrels"))
    if qrels is not None:
        _check_qrels(config.qrels or f"task {task.name}", qrels, task)
    judge = _judge(config, task, qrels)
    questions, not_applicable = _questions(config, task)
    run_path = None if config.run is None else existing(config.run, "--run")
    plugins: list[tuple[str, object, type]] = [("judge", judge, Judge)] if judge is not None else []
    retriever = reranker = None
    if run_path is None:
        retriever = RETRIEVERS.create(config.retriever, config.retriever_args)
        plugins.append(("retriever", retriever, Retriever))
    if config.reranker is not None:
        reranker = RERANKERS.create(config.reranker, config.reranker_args)
        plugins.append(("reranker", reranker, Reranker))
    for kind, plugin, protocol in plugins:
        _check_methods(kind, plugin, protocol)
    return Experiment(
        config=config,
        task=task,
        qrels=qrels,
        questions=questions,
        not_applicable=not_applicable,
        corpus=_corpus(config, task),
        retriever=retriever,
        run_path=run_path,
        reranker=reranker,
        judge=judge,
    )


def _check_methods(kind: str, plugin: object, protocol: type) -> None:
    methods = [name for name in vars(protocol) if not name.startswith("_") and callable(vars(protocol)[name])]
    missing = [name for name in methods if not callable(getattr(plugin, name, None))]
    if missing:
        raise ValueError(
            f"{kind} {type(plugin).__name__} has no method {' and no '.join(missing)}: see {kind}s' base.py"
        )


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


def _task(config: RunConfig) -> Task:
    """The questions: those named; else those that come with the corpus, the qrels or the run file; else the demo's."""
    if config.task is not None:
        return _named(TASKS, config.task, config.task_args, "--task", Folder)
    own = None if config.corpus is None else _task_of_corpus(config)
    if own is not None:
        return own
    if config.qrels is not None and config.run is not None:
        return QrelsOnly(existing(config.qrels, "--qrels"))
    if config.run is not None:
        inside = RunQuestions(existing(config.run, "--run"))
        if any(question.perspectives for question in inside.questions):
            return inside
        raise ValueError(f"--run {config.run}: it carries no perspectives of its own: give --task, or --qrels FILE")
    if config.corpus is not None:
        return TASKS.create("berds", config.task_args)
    if config.qrels is not None:
        raise ValueError("--qrels without --task scores a run file only: give --run FILE, or --task")
    return TASKS.create("demo", config.task_args)


def _task_of_corpus(config: RunConfig) -> Task | None:
    """The questions that belong to the corpus of ``--corpus``; None where it has none."""
    name = config.corpus or ""
    if name in CORPORA.names() or ":" in name:
        task = getattr(CORPORA.load(name), "task", None)
        return None if task is None else TASKS.create(task, config.task_args)
    folder = Path(name)
    has_questions = any((folder / file).exists() for file in ("questions.jsonl", "queries.jsonl"))
    return Folder(folder) if has_questions else None


def _corpus(config: RunConfig, task: Task) -> Corpus | None:
    named = config.corpus or cast("str | None", getattr(task, "corpus", None))
    if named is None:
        if config.run is None:
            raise ValueError(f"task {task.name!r} has no corpus of its own: give --corpus")
        return None
    return _named(CORPORA, named, config.corpus_args, "--corpus", _open_jsonl)


def _open_jsonl(path: Path) -> Corpus:
    from corpora.jsonl import Jsonl  # it needs NumPy, which a plan does without

    return Jsonl(path)


def _named(registry: Registry[T], name: str, arguments: Sequence[str], flag: str, opened: Callable[[Path], T]) -> T:
    """The plug-in of a name or import path; else what lies at the path. A known name comes before a path."""
    known = name in registry.names()
    if known and Path(name).is_dir():
        warnings.warn(
            f"{flag} {name} is the {registry.singular} of that name: for the folder, write ./{name}", stacklevel=2
        )
    if known or not Path(name).exists():
        return registry.create(name, arguments)
    if arguments:
        raise ValueError(
            f"{flag}-args {' '.join(arguments)}: the {registry.singular} at the path {name} takes no arguments"
        )
    return opened(Path(name))


def _questions(config: RunConfig, task: Task) -> tuple[tuple[Question, ...], tuple[str, ...]]:
    split = chosen_split(task, config.split)
    chosen = [question for question in task.questions if split in ("all", question.split)]
    if config.query == "question":
        return tuple(chosen), ()
    fit = tuple(q for q in chosen if {"supporting", "opposing"} <= {p.stance for p in q.perspectives})
    if not fit:
        raise ValueError(f"--query {config.query}: no question of task {task.name!r} has perspectives of both stances")
    kept = {question.question_id for question in fit}
    return fit, tuple(question.question_id for question in chosen if question.question_id not in kept)


def _check_questions(task: Task) -> None:
    """What readers check of files is checked of every task here, because tasks are plug-ins."""
    if not task.questions:
        raise ValueError(f"task {task.name!r} has no question: there is nothing to score")
    if not isinstance(task.macro, bool):
        raise ValueError(f"task {task.name!r}: macro is {task.macro!r}, expected True or False")
    seen: set[str] = set()
    for question in task.questions:
        texts = (question.question_id, question.text, question.group)
        ids = [perspective.perspective_id for perspective in question.perspectives]
        stances = {perspective.stance for perspective in question.perspectives}
        problem = None
        if not all(isinstance(each, str) for each in (*texts, *ids)):
            problem = "has an id, text or group that is no str"
        elif question.question_id in seen:
            problem = "is there twice: ids must be unique"
        elif question.question_id[:1] in ("", "#", "{", "[") or question.question_id.split() != [question.question_id]:
            problem = "has an id that no TREC run can hold: no white space, and no #, { or [ at its beginning"
        elif len(set(ids)) < len(ids):
            problem = "has a perspective id twice"
        elif not stances <= {"supporting", "opposing", None}:
            problem = f"has the stances {stances}, expected supporting, opposing or None"
        if problem:
            raise ValueError(f"task {task.name!r}: question {question.question_id!r} {problem}")
        seen.add(question.question_id)


def _check_qrels(name: str, qrels: Qrels, task: Task) -> None:
    """Qrels must be about the task's questions and perspectives."""
    known = {question.question_id: {p.perspective_id for p in question.perspectives} for question in task.questions}
    strangers = [question_id for question_id in qrels if question_id not in known]
    if strangers and len(strangers) == len(qrels):
        raise ValueError(f"qrels {name}: none of {len(qrels)} questions (such as {strangers[0]!r}) is in the task")
    if strangers:
        text = f"qrels {name}: {len(strangers)} questions (such as {strangers[0]!r}) are not in the task"
        warnings.warn(text, stacklevel=2)
    for question_id, subtopics in qrels.items():
        unknown = sorted(subtopics.keys() - known.get(question_id, subtopics.keys()))
        if unknown:
            raise ValueError(f"qrels {name}: question {question_id!r} has no perspective {unknown[0]!r} in the task")


def _judge(config: RunConfig, task: Task, qrels: Qrels | None) -> Judge | None:
    if config.judge == GOLD or (config.judge is None and qrels is not None):
        if qrels is None:
            raise ValueError(f"--judge gold: task {task.name!r} has no qrels: give --qrels FILE or another judge")
        if config.judge_args:
            raise ValueError("--judge-args: gold labels take no arguments")
        return None
    if config.judge is None and "mistral" not in JUDGES.names():
        raise ValueError(
            f"task {task.name!r} has no qrels and this version has no judge of its own yet: "
            "give --qrels FILE, or --judge with a name or module:Class"
        )
    if isinstance(task, QrelsOnly):
        raise ValueError(f"--judge {config.judge}: qrels alone hold no texts to judge: give --task")
    return JUDGES.create(config.judge or "mistral", config.judge_args)
