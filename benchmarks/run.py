"""The command line: ``python -m benchmarks.run``. Heavy imports wait until the flags are known to be right."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.command import cache_at, ended, say, stop
from benchmarks.config import RunConfig, parse

if TYPE_CHECKING:
    from pyarrow import Table

    from benchmarks.experiment import Experiment
    from evaluator.metrics import Metric


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the flags say; the exit code is 0, 2 for a user's mistake, 130 when interrupted."""

    def work() -> None:
        config = parse(arguments)
        with cache_at(config.cache):
            _act(config)

    return ended(work)


def run(config: RunConfig) -> tuple[dict[str, Any], Path]:
    """The scores of a configuration (the content of scores.json) and the folder of its result; made where missing.

    Raises:
        ValueError: The configuration does not fit together, or an input is wrong.
    """
    from benchmarks.resolve import resolve

    with cache_at(config.cache):
        scores, folder, _ = _scored(resolve(config))
    return scores, folder


def _act(config: RunConfig) -> None:
    if config.list:
        from benchmarks.listing import listing

        print(listing())
        return
    from benchmarks.resolve import resolve

    experiment = resolve(config)
    if config.prefetch:
        _prefetch(experiment)
    elif config.dry_run:
        from benchmarks import corrected

        pairs = corrected.people(experiment) if config.labelled_pairs else None
        _print_plan(experiment)
        if pairs is not None:
            _print(f"people         {corrected.plan(experiment, pairs)}")
    elif config.until == "score":
        _print_scores(experiment)
    else:
        _until(experiment)


def _until(experiment: Experiment) -> None:
    from benchmarks import pipeline
    from benchmarks.scoring import chosen_metrics, label_depths, label_table

    stage, part = experiment.config.until, experiment.config.part()
    if stage == "expand":
        say(f"expand: {sum(map(len, experiment.expansions.values()))} queries")
    elif stage == "index":
        pipeline.index(experiment)
    elif stage == "search":
        _ = pipeline.search(experiment) if part is None else pipeline.search_part(experiment)
    elif stage == "rerank" and part is not None:
        step, _ = pipeline.rerank_part(experiment)
        if len(experiment.rerankers) > 1:
            say(f"rerank: {experiment.config.reranker[step]}, number {step + 1} of {len(experiment.rerankers)}")
    elif stage == "rerank":
        pipeline.final_run(experiment)
    else:
        metrics = chosen_metrics(experiment)
        if part is not None:
            pipeline.require_rankings(experiment)
        run = pipeline.final_run(experiment)
        run = run if part is None else pipeline.judged_part(run, part, label_depths(experiment, metrics))
        _, counts = label_table(experiment, run, metrics)
        ahead = f" ({counts.ahead} of them ahead of need)" if counts.ahead else ""
        say(f"judge: {counts.needed} pairs needed, {counts.reused} reused, {counts.judged} judged{ahead}")
    done = f"{stage}: done" + ("" if part is None else f", part {experiment.config.shard}")
    say(done + ("" if part is None else "; once all parts are done, the same command without --shard joins them"))


def _scored(experiment: Experiment) -> tuple[dict[str, Any], Path, list[str]]:
    """scores.json, its folder and the names of the metrics asked for; nothing is computed where all is there."""
    from benchmarks import results
    from benchmarks.families import same_family
    from benchmarks.plan import read_scores, result_folder
    from benchmarks.scoring import chosen_metrics, holes_filled

    config, folder = experiment.config, result_folder(experiment)
    results.check_exports(experiment)
    metrics = chosen_metrics(experiment)
    asked = [metric.name for metric in metrics]
    before = None if config.overwrite else read_scores(folder)
    known = None if config.overwrite else results.read_labels(folder)
    if config.stored_only and known is not None and holes_filled(known):
        before = known = None
    stale = before is not None and before.get("same_family") != same_family(experiment)  # a family named only now
    if before is None or stale or not set(asked) <= before["scores"].keys() or config.export:
        before = _compute(experiment, folder, metrics, known)
    return before, folder, asked


def _compute(experiment: Experiment, folder: Path, metrics: Sequence[Metric], known: Table | None) -> dict[str, Any]:
    """Makes the result's files; those that are there already are taken, and only what is missing is added."""
    from benchmarks import results
    from benchmarks.pipeline import final_run
    from benchmarks.plan import read_scores
    from benchmarks.scoring import label_depths, label_table, score
    from evaluator.labels import table_depths
    from evaluator.metrics import parse

    started = time.time()
    run = results.read_final_run(folder) if known is not None else None
    if run is None:
        run = final_run(experiment)
        results.write_final_run(folder, experiment, run)
    while True:  # until no other process has added metrics meanwhile
        stored = {} if experiment.config.overwrite else (read_scores(folder) or {"scores": {}})["scores"]
        names = sorted({metric.name for metric in metrics} | stored.keys())
        wanted = [parse(name) for name in names]
        table, counts = label_table(experiment, run, wanted, known)
        if table is not known:
            replace = known is not None or experiment.config.overwrite or experiment.config.stored_only
            known = table = results.write_labels(folder, table, replace=replace)
            if not table_depths(table).cover(label_depths(experiment, wanted)):
                continue  # another process was first, and had to look less deep
        document, scores, n_perspectives = score(experiment, run, table, wanted)
        results.write_per_question(folder, experiment.scored, n_perspectives, scores)
        judging = {
            "needed": counts.needed,
            "reused": counts.reused,
            "judged": counts.judged,
            "ahead": counts.ahead,
            "cost_usd": counts.cost_usd,
        }
        entry = {"judging": judging, "seconds": round(time.time() - started, 3), "metrics": names}
        entry["ledgers"] = results.ledgers(experiment)
        results.write_provenance(folder, {**entry, **results.surroundings(), "command": sys.argv})
        for path in experiment.config.export:
            results.export(Path(path).expanduser(), experiment, run)
        now = {} if experiment.config.overwrite else (read_scores(folder) or {"scores": {}})["scores"]
        if now.keys() <= set(names):
            return results.write_scores(folder, document)


def _print_scores(experiment: Experiment) -> None:
    from benchmarks import corrected, duplicates
    from benchmarks.results import dump
    from benchmarks.tables import report

    config = experiment.config
    pairs = corrected.people(experiment) if config.labelled_pairs else None
    scores, folder, asked = _scored(experiment)
    _print(dump(scores).rstrip("\n") if config.json else report(scores, asked, str(folder)))
    if config.with_duplicates:
        compared = duplicates.compare(experiment, folder, asked)
        if not config.json:
            _print(duplicates.table(compared, scores))
    if pairs is not None:
        document = corrected.correct(experiment, folder, scores, pairs)
        if not config.json:
            _print(corrected.table(document, asked))


def _print(text: str) -> None:
    try:
        print(text, flush=True)
    except BrokenPipeError:  # the reader of our output has left, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print_plan(experiment: Experiment) -> None:
    from benchmarks.forecast import known_run, rerank_steps
    from benchmarks.plan import Step, plan
    from benchmarks.scoring import chosen_metrics, count_stored, label_depths

    metrics = chosen_metrics(experiment)

    def judging() -> Step:
        if experiment.judge is None and experiment.qrels is None:
            return Step("judge", False, "there are no qrels and no judge is chosen: give --judge, or --qrels FILE")
        if experiment.judge is None:
            return Step("judge", True, "gold labels")
        run = known_run(experiment)
        if run is None:
            return Step("judge", False, f"judge {experiment.config.judge}, on what the reranker gives")
        needed, stored = count_stored(experiment, run, metrics)
        price = getattr(experiment.judge, "cost_usd_per_pair", None)
        cost = "" if price is None else f", about {price * (needed - stored):.2f} USD"
        most = "at most " if needed > stored and label_depths(experiment, metrics).lazy else ""
        pairs = f"{most}{needed} pairs, {stored} stored, {most}{needed - stored} to judge"
        what = f"judge {experiment.config.judge}: {pairs}{cost}"
        return Step("judge", needed == stored, what)

    steps = plan(experiment, [metric.name for metric in metrics], lambda: rerank_steps(experiment), judging)
    lines = [f"{step.stage:7} {'done ' if step.done else 'to do'}  {step.what}" for step in steps]
    _print("\n".join([*lines, f"metrics        {' '.join(metric.name for metric in metrics)}"]))


def _prefetch(experiment: Experiment) -> None:
    plugins = (
        experiment.task,
        experiment.corpus,
        experiment.expander,
        experiment.retriever,
        *experiment.rerankers,
        experiment.judge,
    )
    fetching = [plugin for plugin in plugins if hasattr(plugin, "prefetch")]
    for plugin in fetching:
        plugin.prefetch()  # type: ignore[union-attr]
        say(f"prefetch: {type(plugin).__name__} is there")
    if not fetching:
        say("prefetch: nothing that this run needs has to be downloaded")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, stop)
    sys.exit(main())
