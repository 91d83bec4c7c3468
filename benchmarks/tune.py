"""The command line ``python -m benchmarks.tune``: choose arguments of rerankers on one split, for use on another.

    python -m benchmarks.tune --task perspectrum --retriever bm25 --reranker mmr --split dev
        --grid lambda=0.5,0.75,0.9,0.95,0.99 --disjoint-from train --metric MRecall@5 --choice mmr.json
    python -m benchmarks.run --task perspectrum --retriever bm25 --reranker mmr --tuned mmr.json --split train

Every point of the grid is a run of its own, whose search, embeddings and judgements are shared. The choice is a JSON
file: the arguments (those of the grid, and those given beside it), the curve, and the questions that it was made on.
``--tuned`` refuses to evaluate on these, and warns where others share a text or a supporting passage with them. The
same command again writes its choice again; any other file that is there is replaced with ``--overwrite`` only.
"""

from __future__ import annotations

import csv
import itertools
import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.choice import Choice, overlapping, read_choice
from benchmarks.command import cache_at, ended
from benchmarks.config import Flags, RunConfig

if TYPE_CHECKING:
    from benchmarks.experiment import Experiment
    from corpora.types import Question

FLAGS = (
    "task", "task_args", "split", "corpus", "corpus_args", "query", "merge", "expander", "expander_args", "expand_for",
    "retriever", "retriever_args", "run", "depth", "reranker", "reranker_args", "judge", "judge_args", "qrels",
    "threshold", "perspectives", "stored_only", "limit", "seed", "cache", "output",
)  # fmt: skip
DESCRIPTION = """Run a reranker with every combination of some arguments on one split, print the curve of a metric with
intervals, and write the best combination to a file for --tuned of benchmarks.run."""


@dataclass(frozen=True)
class Point:
    """One combination of the grid.

    Attributes:
        arguments: As ``--reranker-args`` takes them.
        values: question_id -> the metric; NaN where undefined.
        mean: Over the questions where it is defined, groups weighted as the task asks.
        low: Lower end of the 95 % bootstrap interval.
        high: Upper end of it.
    """

    arguments: tuple[str, ...]
    values: Mapping[str, float]
    mean: float
    low: float
    high: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the flags say; the exit code is 0, 2 for a user's mistake, 130 when interrupted."""

    def work() -> None:
        flags = parse(arguments)
        config = RunConfig(**{name: flags.pop(name) for name in FLAGS if name in flags})
        with cache_at(config.cache):
            print(tune(config, **flags))

    return ended(work)


def parse(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """The arguments of ``tune``, and of the run, that a command line asks for.

    Raises:
        ValueError: The command line is wrong; the message is one line.
    """
    parser = Flags("python -m benchmarks.tune", DESCRIPTION)
    parser.add_argument(
        "--grid", nargs="+", required=True, metavar="KEY=V1,V2", help="values to try, of --reranker-args"
    )
    parser.add_argument("--metric", default="MRecall@5", metavar="METRIC", help="what the best combination is best in")
    parser.add_argument(
        "--choice", type=Path, default=Path("tuned.json"), metavar="FILE", help="where the choice is written"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace what lies at --choice, whatever it is")
    shared = "leave out questions that share a perspective's text or a passage with this split"
    parser.add_argument("--disjoint-from", metavar="SPLIT", help=shared)
    parser.add_run_flags(FLAGS)
    found = vars(parser.parse_args(arguments))
    found = {
        name: tuple(value) if isinstance(value, list) and name != "grid" else value for name, value in found.items()
    }
    if "split" not in found or not found.get("reranker"):
        raise ValueError("give --split (what to tune on) and --reranker (what to tune)")
    return found


def tune(
    config: RunConfig,
    grid: Sequence[str],
    metric: str,
    choice: Path,
    disjoint_from: str | None = None,
    overwrite: bool = False,
) -> str:
    """Runs the grid, writes the choice, and returns the table.

    Args:
        config: The run without the grid's arguments.
        grid: ``key=value,value,...`` each; all combinations are tried.
        metric: Its mean decides, by the metric's own direction; the first of equal ones is taken.
        choice: The file to write.
        disjoint_from: Questions that overlap with this split are left out of the choice.
        overwrite: Whether another file at ``choice`` may go; what the same tuning wrote there may always.

    Raises:
        ValueError: Something does not fit together; the message is one line.
    """
    from benchmarks.resolve import resolve
    from evaluator.metrics import parse as parse_metric

    decides = parse_metric(metric)
    name, sign = decides.name, 1 if decides.higher_is_better else -1
    if decides.higher_is_better is None:
        raise ValueError(f"{name}: neither high nor low values are better: choose another --metric")
    combinations = _combinations(grid)
    before = None if overwrite or not choice.exists() else _before(choice, config, combinations, name)
    experiment = resolve(replace(config, reranker_args=(*config.reranker_args, *combinations[0])))
    kept, left_out = _questions(experiment, disjoint_from)
    if before is not None:
        _check_same(choice, before, config, kept)
    points = [_point(config, arguments, name, kept, experiment) for arguments in combinations]
    if all(math.isnan(point.mean) for point in points):
        raise ValueError(f"{name} is undefined for all {len(kept)} questions: choose another --metric")
    best = max(points, key=lambda point: -math.inf if math.isnan(point.mean) else sign * point.mean)
    Choice(
        reranker=config.reranker,
        arguments=best.arguments,
        task=experiment.task.name,
        split=experiment.split,
        metric=name,
        questions=tuple(question.question_id for question in kept),
        texts=tuple(question.text for question in kept),
        given=config.reranker_args,
    ).write(
        choice,
        [{"arguments": point.arguments, **dict(_numbers(point))} for point in points],
        resolve(replace(config, reranker_args=(*config.reranker_args, *best.arguments))).identity,
    )
    return _table(name, sign, points, best, len(kept), left_out, choice)


def _combinations(grid: Sequence[str]) -> list[tuple[str, ...]]:
    axes: dict[str, list[str]] = {}
    for item in grid:
        key, equals, values = item.partition("=")
        listed = [value for value in values.split(",") if value]
        if not (key and equals and listed) or key in axes:
            raise ValueError(f"--grid {item}: expected key=value,value,... and each key once")
        axes[key] = list(dict.fromkeys(listed))
    return [
        tuple(f"{key}={value}" for key, value in zip(axes, values, strict=True))
        for values in itertools.product(*axes.values())
    ]


def _before(
    path: Path, config: RunConfig, combinations: Sequence[tuple[str, ...]], metric: str
) -> tuple[Choice, object]:
    """The choice that lies at the path, and the configuration of its run.

    Raises:
        ValueError: It is none, or one of other rerankers, arguments, metric or split.
    """
    try:
        found = read_choice(str(path))
        document = json.loads(path.read_text(encoding="utf-8"))
        tried = [tuple(point["arguments"]) for point in document["curve"]]
        made = document["config"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _taken(path, "and is no choice of benchmarks.tune") from error
    was = (found.reranker, found.given, found.metric, found.split, tried)
    split = found.split if config.split is None else config.split
    if was != (config.reranker, config.reranker_args, metric, split, list(combinations)):
        raise _taken(path, "and holds the choice of another command")
    return found, made


def _check_same(path: Path, before: tuple[Choice, object], config: RunConfig, kept: Sequence[Question]) -> None:
    """Refuses to replace a choice that was made on other questions, or by runs that differ in anything else."""
    from benchmarks.resolve import resolve

    found, made = before
    same = found.questions == tuple(question.question_id for question in kept)
    if same:
        now = resolve(replace(config, reranker_args=(*config.reranker_args, *found.arguments))).identity
        same = json.loads(json.dumps(now)) == made
    if not same:
        raise _taken(path, "and holds the choice of another command")


def _taken(path: Path, what: str) -> ValueError:
    return ValueError(f"--choice {path}: it is there, {what}: choose another name, or give --overwrite")


def _questions(experiment: Experiment, disjoint_from: str | None) -> tuple[list[Question], int]:
    """Those that count, and how many were left out."""
    scored = experiment.scored
    shared: set[str] = set()
    if disjoint_from is not None:
        others = [q for q in experiment.task.questions if q.split == disjoint_from]
        if not others or disjoint_from == experiment.split:
            splits = dict.fromkeys(q.split for q in experiment.task.questions if q.split != experiment.split)
            raise ValueError(
                f"--disjoint-from {disjoint_from}: expected another split of task {experiment.task.name!r} than "
                f"{experiment.split}: {', '.join(filter(None, splits)) or 'it has none'}"
            )
        shared = overlapping(scored, others, experiment.qrels)
    kept = [question for question in scored if question.question_id not in shared]
    if not kept:
        raise ValueError(f"--disjoint-from {disjoint_from}: all {len(scored)} questions overlap with it")
    return kept, len(scored) - len(kept)


def _point(
    config: RunConfig, arguments: tuple[str, ...], metric: str, kept: Sequence[Question], experiment: Experiment
) -> Point:
    from benchmarks.run import run
    from evaluator.statistics import aggregate

    _, folder = run(replace(config, reranker_args=(*config.reranker_args, *arguments), metrics=(metric,)))
    with (folder / "per_question.csv").open(encoding="utf-8", newline="") as file:
        rows = {row["question_id"]: row[metric] for row in csv.DictReader(file)}
    groups = {question.question_id: question.group for question in kept}
    values = {name: float(rows[name]) if rows[name] else math.nan for name in groups}
    found = aggregate(metric, values, groups, experiment.task.macro, config.seed)
    return Point(arguments, values, found.mean, found.low, found.high)


def _numbers(point: Point) -> list[tuple[str, float]]:
    return [("mean", point.mean), ("low", point.low), ("high", point.high)]


def _table(metric: str, sign: int, points: Sequence[Point], best: Point, n: int, left_out: int, choice: Path) -> str:
    from benchmarks.tables import shown

    def text(value: float) -> str:
        return shown(metric, None if math.isnan(value) else value)

    names = [" ".join(point.arguments) for point in points]
    width = max(map(len, (*names, "arguments")))
    lines = [f"{'arguments':{width}}  {metric}  95% interval"]
    for name, point in zip(names, points, strict=True):
        mean, low, high = (text(value) for _, value in _numbers(point))
        lines.append(f"{name:{width}}  {mean:>{len(metric)}}  [{low}, {high}]{'  <- chosen' if point is best else ''}")
    columns = zip(*(point.values.values() for point in points), strict=True)
    defined = [[value for value in values if not math.isnan(value)] for values in columns]
    known = [max(values, key=lambda value: sign * value) for values in defined if values]
    oracle = sum(known) / len(known) if known else math.nan
    lines.append(f"the best combination for each question, chosen by its own labels (ORACLE): {text(oracle)}")
    if left_out:
        lines.append(f"{left_out} questions were left out, because they share a text or a passage with the other split")
    return "\n".join([*lines, f"chosen on {n} questions; written to {choice}, for --tuned {choice}"])


if __name__ == "__main__":
    sys.exit(main())
