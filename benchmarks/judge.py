"""The command line ``python -m benchmarks.judge``: judges what several runs need, each pair once.

    python -m benchmarks.judge RUN ... --judge NAME [--shard 1/4]

A RUN is a folder of results or a run file. The pairs of all of them go to the judge together, those with one passage
side by side, and their judgements to the store: ``benchmarks.run`` then finds them there. Heavy imports wait until the
flags are known to be right.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.command import cache_at, ended, stop
from benchmarks.config import Flags, RunConfig, existing

if TYPE_CHECKING:
    from benchmarks.experiment import Experiment
    from corpora.types import Run
    from evaluator.depths import Depths
    from evaluator.judges import Judge
    from evaluator.judging import Asking, Grid

FLAGS = (
    "task", "task_args", "split", "corpus", "corpus_args", "judge", "judge_args", "metrics", "k", "depth", "threshold",
    "limit", "shard", "cache", "dry_run",
)  # fmt: skip
HELPS = {
    "task": "questions: a name or a folder (default: those of the results, or inside a run file)",
    "corpus": "passages: a name, a BEIR corpus.jsonl or its folder (default: those of the results, or --task's)",
    "judge": "a name or module:Class (default: that of the results)",
    "depth": "passages that count per question (default: those of the results, 100 for run files)",
    "shard": "do only part i/n (1/4 ... 4/4)",
    "dry_run": "judge nothing; say how many pairs are needed, how many are stored, and what the rest costs",
}
DESCRIPTION = """Judge the pairs that several runs need, each pair once; the judgements go to the store.

Folders of results say themselves which task, corpus, judge and depth they belong to, as far as these have names; flags
come before what they say. Run files need the flags. How deep the judge has to look is a matter of --metrics."""


@dataclass(frozen=True)
class Source:
    """A run whose pairs are to be judged, and how deep."""

    experiment: Experiment
    run: Run
    depths: Depths


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the flags say; the exit code is 0, 2 for a user's mistake, 130 when interrupted."""

    def work() -> None:
        flags = parse(arguments)
        with cache_at(flags.get("cache")):
            print(judge_runs(flags.pop("runs"), flags))

    return ended(work)


def parse(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """The flags that are given, by field of ``RunConfig``, and ``runs``.

    Raises:
        ValueError: The command line is wrong; the message is one line.
    """
    parser = Flags("python -m benchmarks.judge", DESCRIPTION)
    parser.add_argument("runs", nargs="+", metavar="RUN", help="a folder of results, or a run file (TREC, BERDS, DPR)")
    parser.add_run_flags(FLAGS, **HELPS)
    found = vars(parser.parse_args(arguments))
    flags = {name: tuple(value) if isinstance(value, list) else value for name, value in found.items()}
    _config(None, flags)  # refuses what can be refused without looking at any file
    return flags


def judge_runs(runs: Sequence[str], flags: Mapping[str, Any]) -> str:
    """Judges what runs need and the store lacks; returns a line with the counts.

    Args:
        runs: Folders of results, or run files.
        flags: Fields of ``RunConfig``; with ``dry_run`` nothing is judged, and the line says what would be.
    """
    from corpora.fingerprint import fingerprint
    from evaluator.judgements import JudgementStore
    from evaluator.judging import Asking

    sources = read_sources(runs, flags)
    judge = _one_judge(runs, sources)
    asking = Asking(judge, fingerprint(judge), JudgementStore(), stored_only="dry_run" in flags)
    own = _grids(sources)
    _fill(asking, own)
    return _report(sources, asking, own)


def read_sources(runs: Sequence[str], flags: Mapping[str, Any]) -> list[Source]:
    """The runs, the task, corpus and judge of each, and how deep the metrics look."""
    from benchmarks import pipeline
    from benchmarks.reopen import is_result, reopen
    from benchmarks.resolve import resolve
    from benchmarks.scoring import chosen_metrics, label_depths

    if flags.get("judge") == "gold":
        raise ValueError("--judge gold: gold labels are read, not judged: give the name of a judge")
    sources: list[Source] = []
    for path in sorted(runs, key=lambda path: not is_result(Path(path))):  # results first: they may name the judge
        if existing(path, "RUN").is_dir():
            given = {name: value for name, value in flags.items() if name != "dry_run"}
            experiment, run = reopen(Path(path), given, judged=True)
        else:
            experiment = resolve(_config(path, {**_judge_of(path, flags, sources), **flags}))
            run = pipeline.retrieved(experiment)
        depths, part = label_depths(experiment, chosen_metrics(experiment)), experiment.config.part()
        sources.append(Source(experiment, run if part is None else pipeline.judged_part(run, part, depths), depths))
    return sources


def _judge_of(path: str, flags: Mapping[str, Any], sources: Sequence[Source]) -> dict[str, Any]:
    """The judge of a run file: that of the results beside it, where no flag names one."""
    if "judge" in flags:
        return {}
    if not sources:
        raise ValueError(f"RUN {path}: give --judge: a run file does not say who judges it")
    config = sources[0].experiment.config
    return {"judge": config.judge, "judge_args": config.judge_args}


def _config(path: str | None, flags: Mapping[str, Any]) -> RunConfig:
    given = {name: value for name, value in flags.items() if name not in ("runs", "dry_run")}
    return RunConfig(**given, run=path, until="judge")


def _one_judge(runs: Sequence[str], sources: Sequence[Source]) -> Judge:
    from corpora.fingerprint import fingerprint

    judges = {fingerprint(each.experiment.judge): each.experiment.judge for each in sources}
    judge = next(iter(judges.values()))
    if judge is None:
        raise TypeError("a run without a judge")
    if len(judges) > 1:
        raise ValueError(f"{len(runs)} runs have {len(judges)} different judges: give --judge, or judge them apart")
    return judge


def _grids(sources: Sequence[Source]) -> list[Grid]:
    from benchmarks.pipeline import passages
    from evaluator.judging import grids

    return [
        grid
        for each in sources
        for grid in grids(
            each.run,
            each.experiment.scored,
            passages(each.experiment),
            each.depths,
            each.experiment.config.threshold,
        )
    ]


def _fill(asking: Asking, grids: Sequence[Grid]) -> None:
    from tqdm import tqdm

    lazy = any(grid.depths.lazy for grid in grids)
    total = None if lazy else sum(grid.status.size for grid in grids)
    with tqdm(total=total, desc="judge", unit="pair", disable=None, leave=False) as bar:
        asking.progress = bar.update
        asking.fill(grids)


def _report(sources: Sequence[Source], asking: Asking, grids: Sequence[Grid]) -> str:
    from evaluator.judging import tally

    count, config = tally(grids), sources[0].experiment.config
    pairs = sum(int(grid.wanted().sum()) for grid in grids)
    part = "" if config.shard is None else f", part {config.shard}"
    most = "at most " if count.missing and any(each.depths.lazy for each in sources) else ""
    line = f"judge {config.judge}: {len(sources)} runs{part}: {most}{pairs} pairs, {count.needed} different; "
    if asking.stored_only:
        price = getattr(asking.judge, "cost_usd_per_pair", None)
        cost = "" if price is None else f", about {price * count.missing:.2f} USD"
        return f"{line}{count.reused} stored, {most}{count.missing} to judge{cost}"
    ahead = f" and {count.ahead} ahead of need" if count.ahead else ""
    cost = f", {asking.counts.cost_usd:.2f} USD" if asking.counts.cost_usd else ""
    return f"{line}{count.reused} reused, {asking.counts.judged - count.ahead} judged{ahead}{cost}"


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, stop)
    sys.exit(main())
