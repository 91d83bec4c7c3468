"""How often do the intervals of error-aware scores hold the truth? Run: python tests/simulation/correction.py.

Each simulation draws questions with true labels, a judge's labels of them, and labelled pairs of other questions to
measure the judge on; then it asks whether the 95 % interval holds the mean of the metric over very many such questions.
Beside it stand the intervals of the judge's labels as they are (naive). Worlds whose name begins with "model" obey the
assumptions; the others break one each. ``--help`` shows how to choose worlds, sizes and processes.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import re
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np

from evaluator.correction import corrected_scores
from evaluator.error_rates import JudgeErrors
from evaluator.metrics import parse
from evaluator.statistics import score_run

METRICS = [parse(name) for name in ("MRecall@5", "Precision@5", "StRecall@5", "alpha_DCG@5")]
K, SENSITIVITY, SPECIFICITY = 5, 0.6, 0.93
LABELLED_QUESTIONS, PAIRS_PER_QUESTION, LABELLED_SHARE = 60, 12, 0.25
PERSPECTRUM = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "perspectrum"


def independent(prevalences):
    """True labels that depend on nothing but the rank."""

    def draw(n, random):
        return (random.random((n, K, 2)) < np.array(prevalences)[:, None]).astype(np.int8)

    return draw


def clustered(middle, question, column, row=0.0, m=2):
    """Logits vary normally by question and by perspective; with ``row`` by passage too, which the model ignores."""

    def draw(n, random):
        logits = middle - 0.15 * np.arange(K)[None, :, None] + question * random.normal(size=(n, 1, 1))
        logits = logits + column * random.normal(size=(n, 1, m)) + row * random.normal(size=(n, K, 1))
        return (random.random(logits.shape) < 1 / (1 + np.exp(-logits))).astype(np.int8)

    return draw


def perspectrum():
    """Real labels: the best five passages by BM25 for 173 questions of Perspectrum, pro against contra."""
    questions = [json.loads(line) for line in (PERSPECTRUM / "questions.jsonl").open()]
    corpus = [json.loads(line) for line in (PERSPECTRUM / "corpus.jsonl").open()]
    supports = {tuple(line.split()[:3]) for line in (PERSPECTRUM / "qrels.txt").open() if int(line.split()[3]) > 0}
    best = bm25([each["text"] for each in corpus])
    matrices = []
    for question in questions:
        sides = [
            [each["perspective_id"] for each in question["perspectives"] if each["stance"] == stance]
            for stance in ("supporting", "opposing")
        ]
        if all(sides):
            matrices.append(
                [
                    [any((question["question_id"], p, corpus[i]["_id"]) in supports for p in side) for side in sides]
                    for i in best(question["question"])
                ]
            )
    population = np.array(matrices, dtype=np.int8)
    return lambda n, random: population[random.integers(0, len(population), n)]


def bm25(texts, k1=0.9, b=0.4):
    """The places of the best K texts for a question (a search library's threads do not outlive a fork)."""
    counts = [Counter(re.findall(r"\w+", text.lower())) for text in texts]
    lengths = np.array([sum(each.values()) for each in counts])
    postings = defaultdict(list)
    for i, each in enumerate(counts):
        for word, count in each.items():
            postings[word].append((i, count))

    def best(question):
        scores = np.zeros(len(texts))
        for word in set(re.findall(r"\w+", question.lower())) & set(postings):
            places, found = np.array(postings[word]).T
            idf = np.log(1 + (len(texts) - len(places) + 0.5) / (len(places) + 0.5))
            scores[places] += idf * found / (found + k1 * (1 - b + b * lengths[places] / lengths.mean()))
        return np.argsort(-scores, kind="stable")[:K]

    return best


def plain_judge(true, random, sensitivity=SENSITIVITY, specificity=SPECIFICITY):
    """Errs on each pair by itself."""
    chance = random.random(true.shape)
    return np.where(true == 1, chance < sensitivity, chance > specificity).astype(np.int8)


def alike(axes, spread):
    """A judge whose errors are alike over some axes: normal thresholds share a part of their variance (probit)."""

    def judge(true, random):
        shape = tuple(1 if axis in axes else size for axis, size in enumerate(true.shape))
        # P(z < quantile) keeps the rates: shared and own part together have variance 1.
        z = np.sqrt(spread) * random.normal(size=shape) + np.sqrt(1 - spread) * random.normal(size=true.shape)
        return np.where(true == 1, z < _quantile(SENSITIVITY), z < _quantile(1 - SPECIFICITY)).astype(np.int8)

    return judge


def _quantile(share):
    from statistics import NormalDist

    return NormalDist().inv_cdf(share)


def shifted(sensitivity):
    """A judge that is worse on the run than on the labelled pairs."""
    return lambda true, random: plain_judge(true, random, sensitivity)


LOW, HIGH = (0.10, 0.08, 0.06, 0.05, 0.04), (0.42, 0.37, 0.34, 0.32, 0.30)
WORLDS = {
    "model: independent, low": (independent(LOW), plain_judge),
    "model: independent, high": (independent(HIGH), plain_judge),
    "model: clustered, low": (clustered(-2.2, 1.2, 0.8), plain_judge),
    "model: clustered, high": (clustered(-0.9, 1.0, 0.7), plain_judge),
    "model: clustered, m = 4": (clustered(-1.5, 1.0, 0.7, m=4), plain_judge),
    "passages differ too": (clustered(-2.2, 1.2, 0.8, 0.8), plain_judge),
    "errors alike within a passage (.3)": (clustered(-2.2, 1.2, 0.8), alike((2,), 0.3)),
    "errors alike within a question (.3)": (clustered(-2.2, 1.2, 0.8), alike((1, 2), 0.3)),
    "errors alike within a perspective (.3)": (clustered(-2.2, 1.2, 0.8), alike((1,), 0.3)),
    "sensitivity .50 instead of .60": (clustered(-2.2, 1.2, 0.8), shifted(0.5)),
    "sensitivity .70 instead of .60": (clustered(-2.2, 1.2, 0.8), shifted(0.7)),
}


def measured(judge, random):
    """The judge's errors on labelled pairs: 60 questions of 12 pairs, a quarter of them supports, unevenly."""
    share = random.beta(2, 2 * (1 - LABELLED_SHARE) / LABELLED_SHARE, (LABELLED_QUESTIONS, 1, 1))
    true = (random.random((LABELLED_QUESTIONS, PAIRS_PER_QUESTION // 2, 2)) < share).astype(np.int8)
    answers = judge(true, random)
    questions = np.repeat(np.arange(LABELLED_QUESTIONS).astype(str), PAIRS_PER_QUESTION)
    return JudgeErrors.from_answers(
        questions.tolist(), true.ravel().astype(bool).tolist(), answers.ravel().astype(bool).tolist()
    )


def one(job):
    """Truth held by corrected and by naive interval, errors of both, and width, for each metric."""
    world, seed, n, draws, structure = job
    draw, judge = WORLDS[world]
    random = np.random.default_rng([seed, n, len(world), sum(map(ord, world))])
    labels = {f"q{i:05d}": each for i, each in enumerate(judge(draw(n, random), random))}
    calibration = judge if world.startswith(("model", "errors")) else plain_judge
    found = corrected_scores(
        METRICS, labels, measured(calibration, random), clustered=structure, seed=seed, draws=draws
    )
    naive = score_run(METRICS, labels, seed=seed) if seed % 10 == 0 else [None] * len(METRICS)
    truth = TRUTH[world]
    rows = []
    for score, plain, true in zip(found.scores, naive, truth, strict=True):
        held = np.nan if plain is None else plain.low <= true <= plain.high
        width, below = score.high - score.low, true < score.low
        rows.append([score.low <= true <= score.high, held, score.mean - true, score.naive - true, width, below])
    return rows


TRUTH = {}


def main():
    """Prints a row per world and metric."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--worlds", default="", help="only those whose name holds this text")
    parser.add_argument("--simulations", type=int, default=2000)
    parser.add_argument("--questions", type=int, default=300)
    parser.add_argument("--draws", type=int, default=400)
    parser.add_argument("--independent", action="store_true", help="fit prevalence by rank only, without clusters")
    parser.add_argument("--processes", type=int, default=2)
    flags = parser.parse_args()
    if PERSPECTRUM.is_dir():
        WORLDS["real labels (Perspectrum)"] = (perspectrum(), plain_judge)
    print(f"{'world':40} {'metric':12} truth  naive   bias  cover  naive covers  width  below", flush=True)
    for world in WORLDS:
        if flags.worlds not in world:
            continue
        many = WORLDS[world][0](200_000, np.random.default_rng(0))
        TRUTH[world] = [each.mean for each in _score(many)]
        jobs = [(world, seed, flags.questions, flags.draws, not flags.independent) for seed in range(flags.simulations)]
        with multiprocessing.get_context("fork").Pool(flags.processes) as pool:
            rows = np.array(pool.map(one, jobs, chunksize=10), dtype=float)
        for metric, true, row in zip(METRICS, TRUTH[world], np.moveaxis(rows, 1, 0), strict=True):
            print(
                f"{world:40} {metric.name:12} {100 * true:5.1f} {100 * (true + row[:, 3].mean()):6.1f} "
                f"{100 * row[:, 2].mean():+6.2f} {100 * row[:, 0].mean():6.1f} {100 * np.nanmean(row[:, 1]):13.1f} "
                f"{100 * row[:, 4].mean():6.1f} {100 * row[:, 5].mean():6.1f}",
                flush=True,
            )


def _score(many):
    """Means of the metrics over very many questions: equal matrices are scored once."""
    from types import SimpleNamespace

    unique, counts = np.unique(many.reshape(len(many), -1), axis=0, return_counts=True)
    values = [[metric.score(each.reshape(many.shape[1:])) for each in unique] for metric in METRICS]
    return [SimpleNamespace(mean=float(np.average(value, weights=counts))) for value in values]


if __name__ == "__main__":
    main()
