"""Does ``small`` rank systems as gold labels do? The table of docs/judging.md. Run: python tests/tables/judges.py.

On the demo collection, and on the questions of Perspectrum that ``evaluator.training_data`` keeps out of training
(``test``). Systems are retrievers and rerankers that need no download; each is scored with gold labels and with the
judge, and Kendall's tau (tau-b) says how alike the two orders of systems are. Its interval resamples questions, for
both at once. Results and judgements are kept under ``--work``; a second run only prints the table anew.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from scipy.stats import kendalltau

from benchmarks.config import RunConfig
from benchmarks.run import run
from evaluator.training_data import make_all

DATA = Path(os.environ.get("RETRIEVAL_DIVERSITY_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))
MINILM = {"retriever": "sentence-transformer", "retriever_args": ("encoder=minilm",)}
SYSTEMS: Mapping[str, Mapping[str, object]] = {
    "bm25": {},
    "bm25, stemmed": {"retriever_args": ("stemmer=english",)},
    "rank_bm25": {"retriever": "rank_bm25"},
    "minilm": MINILM,
    "hybrid": {"retriever": "hybrid", "retriever_args": ("first=bm25", "second=sentence-transformer")},
    "bm25, mmr .5": {"reranker": ("mmr",), "reranker_args": ("lambda=0.5", "encoder=minilm")},
    "minilm, mmr .5": {**MINILM, "reranker": ("mmr",), "reranker_args": ("lambda=0.5", "encoder=minilm")},
    "minilm, vrsd": {**MINILM, "reranker": ("vrsd",), "reranker_args": ("encoder=minilm",)},
}
METRICS = ("MRecall@5", "Precision@5", "StRecall@5")
RESAMPLES = 2000


def fold(work: Path) -> Path:
    """The questions of Perspectrum that no detector was trained on, with the whole corpus, as a task folder."""
    source, target = DATA / "perspectrum", work / "fold"
    if not (target / "qrels.txt").exists():
        target.mkdir(parents=True, exist_ok=True)
        files, _ = make_all(source, DATA / "argkp2021" / "ArgKP-2021_dataset.csv.gz")
        kept = {each.pair.question.question_id for each in files["test_perspectrum"]}
        rows = [json.loads(line) for line in (source / "questions.jsonl").open(encoding="utf-8")]
        chosen = [json.dumps(row | {"split": "test"}) for row in rows if row["question_id"] in kept]
        (target / "questions.jsonl").write_text("\n".join(chosen) + "\n", encoding="utf-8")
        (target / "corpus.jsonl").write_bytes((source / "corpus.jsonl").read_bytes())
        lines = (source / "qrels.txt").read_text(encoding="utf-8").splitlines()
        wanted = [line for line in lines if line.split()[0] in kept]
        (target / "qrels.txt").write_text("\n".join(wanted) + "\n", encoding="utf-8")
    return target


def values(work: Path, task: Mapping[str, object], system: Mapping[str, object], judge: str) -> np.ndarray:
    """float64 (metrics, questions): a system's values by these labels."""
    settings = {"metrics": METRICS, "depth": 20, "cache": str(work / "cache"), "output": str(work / "results")}
    _, folder = run(RunConfig(**task, **system, **settings, judge=judge))
    with (folder / "per_question.csv").open(encoding="utf-8") as file:
        rows = sorted(csv.DictReader(file), key=lambda row: row["question_id"])
    return np.array([[float(row[metric] or "nan") for row in rows] for metric in METRICS])


def main() -> None:
    """Prints a table per collection."""
    parser = argparse.ArgumentParser(description=__doc__.partition("?")[0])
    parser.add_argument("--work", type=Path, required=True, metavar="FOLDER", help="where results are kept")
    parser.add_argument("--judge", default="small")
    given = parser.parse_args()
    tasks = {"demo": {"corpus": "demo"}, "Perspectrum, fold": {"task": str(fold(given.work))}}
    for title, task in tasks.items():
        found = {
            judge: np.array([values(given.work, task, system, judge) for system in SYSTEMS.values()])
            for judge in ("gold", given.judge)
        }
        gold, judged = found["gold"], found[given.judge]
        n = gold.shape[2]
        print(f"\n{title}: {n} questions, {len(SYSTEMS)} systems, percent by gold labels and by {given.judge}\n")
        print(f"| system | {' | '.join(f'{metric} gold | {given.judge}' for metric in METRICS)} |")
        print(f"|---|{'---|' * (2 * len(METRICS))}")
        means = [100 * np.nanmean(each, axis=2) for each in (gold, judged)]
        for name, one, other in zip(SYSTEMS, *means, strict=True):
            print(f"| {name} | {' | '.join(f'{a:.1f} | {b:.1f}' for a, b in zip(one, other, strict=True))} |")
        draws = np.random.default_rng(0).integers(0, n, (RESAMPLES, n))
        cells = []
        for i in range(len(METRICS)):
            tau = kendalltau(np.nanmean(gold[:, i], axis=1), np.nanmean(judged[:, i], axis=1)).statistic
            taus = [
                kendalltau(np.nanmean(gold[:, i][:, draw], axis=1), np.nanmean(judged[:, i][:, draw], axis=1)).statistic
                for draw in draws
            ]
            low, high = np.nanpercentile(taus, (2.5, 97.5))
            cells.append(f"{tau:.2f} [{low:.2f}, {high:.2f}] |")
        print(f"| Kendall's tau | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
