"""The command line: ``python -m benchmarks.run``. Heavy imports wait until the flags are known to be right."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from benchmarks.config import RunConfig, parse

if TYPE_CHECKING:
    from benchmarks.resolve import Experiment
    from evaluator.metrics import Metric

OK, MISTAKE, INTERRUPTED = 0, 2, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the flags say; the exit code is 0, 2 for a user's mistake, 130 when interrupted."""
    with _one_line_warnings():
        try:
            config = parse(arguments)
            with _cache(config.cache):
                _act(config)
        except KeyboardInterrupt:
            _say("interrupted: the same command goes on where this one stopped")
            return INTERRUPTED
        except BrokenPipeError:  # the reader of our output has left, as `head` does
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return OK
        except (ValueError, OSError) as error:
            if not is_mistake(error):
                raise
            _say(f"error: {' '.join(str(error).split())}")
            return MISTAKE
    return OK


def run(config: RunConfig) -> tuple[dict[str, Any], Path]:
    """The scores of a configuration (the content of scores.json) and the folder of its result; made where missing.

    Raises:
        ValueError: The configuration does not fit together, or an input is wrong.
    """
    from benchmarks.resolve import resolve

    with _cache(config.cache):
        scores, folder, _ = _scored(resolve(config))
    return scores, folder


def is_mistake(error: Exception) -> bool:
    """Whether an error is the user's: raised on purpose by this project, or a file that cannot be read or written.

    Anything that a library raises from within is a bug, and keeps its traceback.
    """
    if isinstance(error, OSError):
        return error.filename is not None or error.errno is not None
    frames = traceback.extract_tb(error.__traceback__)
    root = str(Path(__file__).resolve().parent.parent)
    ours = {
        os.path.join(root, name) + os.sep for name in ("benchmarks", "corpora", "evaluator", "rerankers", "retrievers")
    }
    return bool(frames) and any(os.path.abspath(frames[-1].filename).startswith(folder) for folder in ours)


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
        _print_plan(experiment)
    elif config.until == "score":
        _print_scores(experiment)
    else:
        _until(experiment)


def _until(experiment: Experiment) -> None:
    from benchmarks import pipeline
    from benchmarks.scoring import label_table

    stage, part = experiment.config.until, experiment.config.part()
    if stage == "index":
        pipeline.index(experiment)
    elif stage == "search":
        _ = pipeline.search(experiment) if part is None else pipeline.search_part(experiment)
    elif stage == "rerank" and part is not None:
        pipeline.rerank_part(experiment)
    elif stage == "rerank":
        pipeline.final_run(experiment)
    else:
        run = pipeline.final_run(experiment)
        run = run if part is None else pipeline.passages_of_part(run, part)
        _, counts = label_table(experiment, run)
        _say(f"judge: {counts.needed} pairs needed, {counts.reused} reused, {counts.judged} judged")
    _say(f"{stage}: done" + ("" if experiment.config.shard is None else f", part {experiment.config.shard}"))


def _scored(experiment: Experiment) -> tuple[dict[str, Any], Path, list[str]]:
    """scores.json, its folder and the names of the metrics asked for; nothing is computed where all is there."""
    from benchmarks.plan import result_folder
    from benchmarks.results import read_scores
    from benchmarks.scoring import chosen_metrics
    from evaluator.metrics import parse_all

    folder = result_folder(experiment)
    metrics = chosen_metrics(experiment)
    asked = [metric.name for metric in metrics]
    before = None if experiment.config.overwrite else read_scores(folder)
    finished = before["scores"] if before else {}
    if before is not None and set(asked) <= set(finished) and not experiment.config.export:
        return before, folder, asked
    return _compute(experiment, folder, parse_all([*asked, *finished])), folder, asked


def _compute(experiment: Experiment, folder: Path, metrics: Sequence[Metric]) -> dict[str, Any]:
    from benchmarks import results
    from benchmarks.pipeline import final_run
    from benchmarks.scoring import label_table, score

    started = time.time()
    run = final_run(experiment)
    results.write_final_run(folder, experiment, run)
    entry: dict[str, object] = {}
    if (folder / "labels.parquet").exists() and not experiment.config.overwrite:
        table = results.read_labels(folder)
    else:
        table, counts = label_table(experiment, run)
        results.write_labels(folder, table)
        entry["judging"] = {"needed": counts.needed, "reused": counts.reused, "judged": counts.judged}
    document, scores = score(experiment, run, table, metrics)
    results.write_per_question(folder, experiment.scored, scores)
    entry |= {"seconds": round(time.time() - started, 3), "metrics": [metric.name for metric in metrics]}
    results.write_provenance(folder, {**entry, **results.surroundings(), "command": sys.argv})
    for path in experiment.config.export:
        results.export(Path(path).expanduser(), experiment, run)
    return results.write_scores(folder, document)


def _print_scores(experiment: Experiment) -> None:
    from benchmarks.results import dump
    from benchmarks.tables import report

    scores, folder, asked = _scored(experiment)
    print(dump(scores), end="") if experiment.config.json else print(report(scores, asked, str(folder)))


def _print_plan(experiment: Experiment) -> None:
    from benchmarks.plan import plan
    from benchmarks.scoring import chosen_metrics

    metrics = chosen_metrics(experiment)
    for step in plan(experiment):
        print(f"{step.stage:7} {'done ' if step.done else 'to do'}  {step.what}")
    print(f"metrics        {' '.join(metric.name for metric in metrics)}")


def _prefetch(experiment: Experiment) -> None:
    plugins = (experiment.task, experiment.corpus, experiment.retriever, experiment.reranker, experiment.judge)
    fetching = [plugin for plugin in plugins if hasattr(plugin, "prefetch")]
    for plugin in fetching:
        plugin.prefetch()  # type: ignore[union-attr]
        _say(f"prefetch: {type(plugin).__name__} is there")
    if not fetching:
        _say("prefetch: nothing that this run needs has to be downloaded")


@contextlib.contextmanager
def _cache(folder: str | None) -> Iterator[None]:
    """Keeps the cache at ``--cache`` for a while; child processes see it too."""
    from corpora.artefacts import CACHE_VARIABLE

    before = os.environ.get(CACHE_VARIABLE)
    if folder is not None:
        os.environ[CACHE_VARIABLE] = str(Path(folder).expanduser().resolve())
    try:
        yield
    finally:
        if folder is not None:
            os.environ.pop(CACHE_VARIABLE, None)
            if before is not None:
                os.environ[CACHE_VARIABLE] = before


@contextlib.contextmanager
def _one_line_warnings() -> Iterator[None]:
    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        _say(f"warning: {' '.join(str(message).split())}")

    with warnings.catch_warnings():
        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = show
        yield


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def _stop(*_: object) -> None:
    """A scheduler's SIGTERM ends a run as Ctrl-C does: what was judged is published first."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _stop)
    sys.exit(main())
