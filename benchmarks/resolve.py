"""A RunConfig's words become objects: task, questions, corpus, plug-ins. Every mistake ends in one line.

Nothing heavy happens here: plug-ins load on first use, so that a plan can be made without running anything.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar, cast

from benchmarks.choice import read_choice
from benchmarks.config import RunConfig, existing
from benchmarks.experiment import GOLD, Experiment, chosen_split
from benchmarks.tasks import TASKS, Folder, QrelsOnly, RunQuestions, Task
from corpora import CORPORA, Corpus
from corpora.files import read_qrels
from corpora.registry import Registry
from corpora.types import Qrels, Question
from evaluator.judges import JUDGES, Judge
from rerankers import RERANKERS, Reranker
from retrievers import EXPANDERS, RETRIEVERS, Expander, Retriever

T = TypeVar("T")


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
    expander = retriever = None
    if config.expander is not None:
        expander = EXPANDERS.create(config.expander, config.expander_args)
        plugins.append(("expander", expander, Expander))
    if run_path is None:
        retriever = RETRIEVERS.create(config.retriever, config.retriever_args)
        plugins.append(("retriever", retriever, Retriever))
    choice = None if config.tuned is None else read_choice(config.tuned)
    rerankers = chain(config.reranker, choice.completed(config) if choice else config.reranker_args)
    plugins += [("reranker", reranker, Reranker) for reranker in rerankers]
    for kind, plugin, protocol in plugins:
        _check_methods(kind, plugin, protocol)
    _check_aspects(config, rerankers)
    return Experiment(
        config=config,
        task=task,
        qrels=qrels,
        questions=questions,
        not_applicable=not_applicable,
        corpus=_corpus(config, task),
        expander=expander,
        retriever=retriever,
        run_path=run_path,
        rerankers=rerankers,
        judge=judge,
        tuned=None
        if choice is None
        else choice.checked(config, task.name, questions[: config.limit], task.questions, qrels),
    )


def chain(names: Sequence[str], arguments: Sequence[str]) -> tuple[Reranker, ...]:
    """The rerankers of these names, each with its own of the arguments.

    Args:
        names: In the order in which they rerank.
        arguments: ``name.key=value`` goes to the reranker of that name, ``key=value`` to the only one that has ``key``.

    Raises:
        ValueError: An argument that none, or more than one, of them has.
    """
    given: list[list[str]] = [[] for _ in names]
    for item in arguments:
        key = item.partition("=")[0]
        mine = [i for i, name in enumerate(names) if key.startswith(f"{name}.")]
        if mine:
            owners, item = mine, item[len(names[mine[0]]) + 1 :]
        elif len(names) == 1:
            owners = [0]
        else:
            field = key.replace("-", "_")
            owners = [i for i, name in enumerate(names) if {field, f"{field}_"} & set(RERANKERS.parameters(name))]
        if len(owners) != 1:
            which = (
                f"{len(owners)} of the rerankers {', '.join(names)} have"
                if owners
                else f"none of {', '.join(names)} has"
            )
            raise ValueError(
                f"--reranker-args {item}: {which} the argument {key!r}: write NAME.KEY=VALUE of one of them"
            )
        given[owners[0]].append(item)
    return tuple(RERANKERS.create(name, own) for name, own in zip(names, given, strict=True))


def _check_aspects(config: RunConfig, rerankers: Sequence[Reranker]) -> None:
    """Rerankers by aspect need somebody who writes aspects; one who reads their rankings, a search for them."""
    for name, reranker in zip(config.reranker, rerankers, strict=True):
        if getattr(reranker, "aspects", False) and (config.expander is None or config.expand_for == "search"):
            raise ValueError(f"reranker {name!r} needs aspects: give --expander, and --expand-for aspects (or both)")
        if getattr(reranker, "aspect_rankings", False) and config.run is not None:
            raise ValueError(f"reranker {name!r} needs the retriever's rankings of the aspects, and --run has none")


def _check_methods(kind: str, plugin: object, protocol: type) -> None:
    methods = [name for name in vars(protocol) if not name.startswith("_") and callable(vars(protocol)[name])]
    missing = [name for name in methods if not callable(getattr(plugin, name, None))]
    if missing:
        raise ValueError(
            f"{kind} {type(plugin).__name__} has no method {' and no '.join(missing)}: see {kind}s' base.py"
        )


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
    if not folder.exists():
        CORPORA.load(name)  # says what it could have been
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
    if config.judge is None and (config.dry_run or config.until in ("index", "search", "rerank")):
        return None  # nothing is judged yet
    if isinstance(task, QrelsOnly):
        raise ValueError(f"--judge {config.judge}: qrels alone hold no texts to judge: give --task")
    if config.judge is None:
        how = "--judge names another one, --qrels FILE gives labels"
        warnings.warn(f"task {task.name!r} has no qrels, so the judge is mistral: {how}", stacklevel=2)
    return JUDGES.create(config.judge or "mistral", config.judge_args)
