"""A finished result opened again: the task, the corpus and the judge that its scores.json names, checked against it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.config import RunConfig
from benchmarks.experiment import GOLD, Experiment
from benchmarks.plan import FILES, read_scores
from benchmarks.resolve import resolve
from benchmarks.results import dump, read_final_run
from benchmarks.tasks import TASKS, task_fingerprint
from corpora import CORPORA
from corpora.fingerprint import describe
from corpora.types import Run


def is_result(path: Path) -> bool:
    """Whether a path is the folder of a result, finished or not."""
    return path.is_dir() and any((path / name).exists() for name in FILES)


def reopen(folder: Path, flags: Mapping[str, Any], *, judged: bool) -> tuple[Experiment, Run]:
    """The experiment that a result was made by, and its final run.

    A result names its task, corpus and judge, but never a path: what lies in a folder of the user's has to be given
    again, and so have arguments that are paths.

    Args:
        folder: The result.
        flags: Fields of ``RunConfig`` that are given anew; they come before what the result says.
        judged: Whether a judge is needed: else none is made, because a large model may hang on it.

    Raises:
        ValueError: The result is not finished, or what is given is not what it was made by.
    """
    scores = read_scores(folder)
    run = None if scores is None else read_final_run(folder)
    if scores is None or run is None:
        raise ValueError(f"{folder}: it is no finished result: expected a folder with {', '.join(FILES)}")
    stamp: dict[str, Any] = scores["config"]
    parts = all(isinstance(stamp.get(name), dict) for name in ("task", "judge"))
    if not parts or not {"query", "limit", "depth", "threshold", "corpus"} <= stamp.keys():
        raise ValueError(f"{folder / 'scores.json'} is damaged: make the result anew with --overwrite")
    told = _told(folder, stamp, flags)
    if judged:
        told |= _judge(folder, stamp["judge"], flags)
    experiment = resolve(RunConfig(**{**told, **flags, "until": "judge", "dry_run": not judged}))
    _check(folder, stamp, experiment)
    if judged and "judge" not in flags:
        _check_judge(folder, stamp["judge"], experiment)
    return experiment, run


def _told(folder: Path, stamp: Mapping[str, Any], flags: Mapping[str, Any]) -> dict[str, Any]:
    """What a result says of itself as fields of ``RunConfig``, as far as names go."""
    told: dict[str, Any] = {name: stamp[name] for name in ("query", "limit", "depth")}
    told["split"] = stamp["task"]["split"]
    if stamp["threshold"] is not None:  # gold labels have none
        told["threshold"] = stamp["threshold"]
    task, corpus = stamp["task"]["name"], (stamp["corpus"] or {}).get("name")
    if "task" not in flags:
        if task not in TASKS.names():
            raise ValueError(f"{folder}: its task {task!r} is a folder or a class of yours: give --task")
        made_from = _named_in_commands(folder)
        if made_from and not any(each in TASKS.names() for each in made_from):
            raise ValueError(
                f"{folder}: its task {task!r} was made from a folder or a class of yours ({made_from[-1]}), not from "
                "the built-in one of that name: give --task FOLDER"
            )
        told["task"] = task
    if "corpus" not in flags and corpus is not None and (corpus in CORPORA.names() or ":" in corpus):
        told["corpus"] = corpus
    return told


def _named_in_commands(folder: Path) -> list[str]:
    """What the command lines that made a result give as ``--task``.

    scores.json has the task's own name only, and a folder may have that of a built-in task, which may be large to
    download. Empty where no command line names one: the result was made in Python.
    """
    try:
        history = json.loads((folder / "provenance.json").read_text(encoding="utf-8"))["history"]
        commands = [list(map(str, entry["command"])) for entry in history]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    found = []
    for command in commands:
        for flag, value in zip(command, [*command[1:], ""], strict=True):
            name, equals, inside = flag.partition("=")
            if name == "--task":
                found.append(inside if equals else value)
    return found


def _judge(folder: Path, stamp: Mapping[str, Any], flags: Mapping[str, Any]) -> dict[str, Any]:
    if "judge" in flags:
        return {}
    if stamp["name"] == GOLD:
        raise ValueError(f"{folder}: its labels are gold: give --judge")
    arguments = stamp.get("arguments", {})
    plain = tuple(f"{name}={_word(value)}" for name, value in arguments.items() if _is_plain(value))
    return {"judge": stamp["name"], "judge_args": plain}


def _is_plain(value: object) -> bool:
    """Whether an argument of a result can be given again: no path, known by its content only, and no object."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return all(_is_plain(each) and "," not in str(each) for each in value)
    return not isinstance(value, Mapping) and not str(value).startswith("content:")


def _word(value: object) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ",".join(map(_word, value))
    return str(value).removeprefix("float:")


def _check(folder: Path, stamp: Mapping[str, Any], experiment: Experiment) -> None:
    name = experiment.task.name
    if task_fingerprint(experiment.task) != stamp["task"]["fingerprint"]:
        raise ValueError(f"{folder}: it was made for other questions or qrels than those of task {name!r}: give --task")
    if experiment.corpus is None or stamp["corpus"] is None:
        return
    if experiment.corpus.fingerprint != stamp["corpus"]["fingerprint"]:
        found = experiment.corpus_name
        raise ValueError(f"{folder}: its passages are not those of corpus {found!r}: give --corpus")


def _check_judge(folder: Path, stamp: Mapping[str, Any], experiment: Experiment) -> None:
    name = stamp["name"]
    found = json.loads(dump({"name": name, **describe(experiment.judge)}))
    if found != stamp:
        raise ValueError(f"{folder}: judge {name!r} is not as it was: give --judge and --judge-args")
