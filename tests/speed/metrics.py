"""How long does scoring a TREC run take, against ir_measures? Run: python tests/speed/metrics.py.

Both sides do the whole job for the 21 measures of ndeval on one TREC 2013 run: read run and qrels, score every topic.
Printed are the medians of five repetitions in one process, and their ratio; it is processor time, which other work
on the machine changes least (both sides use one thread).
"""

from __future__ import annotations

import gzip
import statistics
import sys
import time
from pathlib import Path

import ir_measures
import numpy as np

from corpora.files import read_qrels, read_run
from evaluator.metrics import drop_unsupported, parse
from evaluator.statistics import score_run

TREC = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "trec-web-2013"
NAMES = [f"{name}@{k}" for k in (5, 10, 20) for name in ("ERR_IA", "nERR_IA", "P_IA", "StRecall")]
NAMES += [f"{name}(alpha=0.5)@{k}" for k in (5, 10, 20) for name in ("alpha_DCG", "alpha_nDCG")]
NAMES += ["NRBP(alpha=0.5,beta=0.5)", "nNRBP(alpha=0.5,beta=0.5)", "AP_IA"]
REPEATS = 5


def to_labels(run, qrels):
    """Labels and pools of all topics, without the subtopics that nothing supports."""
    labels, pools = {}, {}
    for topic, subtopics in qrels.items():
        docnos = sorted(set().union(*subtopics.values()), reverse=True)
        row = {docno: i for i, docno in enumerate(docnos)}
        pool = np.full((len(docnos) + 1, len(subtopics)), -1, np.int8)  # the last row: no label
        for j, judged in enumerate(subtopics.values()):
            pool[[row[docno] for docno in judged], j] = [relevance > 0 for relevance in judged.values()]
        retrieved = [row.get(hit.passage_id, -1) for hit in run.get(topic, ())]
        labels[topic], pools[topic] = drop_unsupported(pool[retrieved], pool[:-1])
    return labels, pools


def score(metrics, labels, pools):
    """topic -> values, all metrics of a topic at once."""
    return [[metric.score(labels[topic], pools[topic]) for metric in metrics] for topic in labels]


def ours(run_path, qrels_path):
    """Reading, scoring every topic, means."""
    metrics = [parse(name) for name in NAMES]
    values = score(metrics, *to_labels(read_run(run_path).run, read_qrels(qrels_path)))
    return np.mean(values, axis=0)


def theirs(run_path, qrels_path):
    """The same by ir_measures; one group of parameters, so that one call is right."""
    measures = [ir_measures.parse_measure(name) for name in NAMES]
    with gzip.open(run_path, "rt") as lines:
        run = list(ir_measures.read_trec_run(lines))
    qrels = ir_measures.read_trec_qrels(str(qrels_path))
    means = ir_measures.calc_aggregate(measures, qrels, run)
    return np.array([means[measure] for measure in measures])


def median(function, *arguments):
    """Median seconds of REPEATS calls, and the last result."""
    seconds = []
    for _ in range(REPEATS):
        start = time.process_time()
        result = function(*arguments)
        seconds.append(time.process_time() - start)
    return statistics.median(seconds), result


def main():
    """Prints the comparison."""
    if not TREC.is_dir():
        sys.exit(f"the shared data is absent: {TREC}")
    paths = TREC / "run.biased.txt.gz", TREC / "qrels.web.201-250.ndeval.txt"
    own, own_means = median(ours, *paths)
    other, other_means = median(theirs, *paths)
    print(f"{len(NAMES)} measures, 50 topics, 5,000 passages, 44,814 labels, medians of {REPEATS}")
    print(f"largest difference of a mean: {np.abs(own_means - other_means).max():.1e}")
    print(f"reading and scoring: ours {own * 1000:.0f} ms, ir_measures {other * 1000:.0f} ms, {other / own:.1f} to 1")
    metrics = [parse(name) for name in NAMES]
    reading, (run, qrels) = median(lambda: (read_run(paths[0]).run, read_qrels(paths[1])))
    labelling, (labels, pools) = median(to_labels, run, qrels)
    scoring, _ = median(score, metrics, labels, pools)
    full, _ = median(lambda: score_run(metrics, labels, pools=pools))
    print(
        f"of ours: reading {reading * 1000:.0f} ms, labels {labelling * 1000:.0f} ms, scoring {scoring * 1000:.0f} ms"
    )
    print(f"ir_measures from the files to ours with the labels given: {other / scoring:.1f} to 1")
    print(f"score_run, with upper bounds and intervals of 10,000 resamples: {full * 1000:.0f} ms")


if __name__ == "__main__":
    main()
