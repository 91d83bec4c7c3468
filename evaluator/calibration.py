"""Calibrates the detector ``small``: ``python -m evaluator.calibration --adapter FOLDER --pairs FILE``.

From labelled pairs that were not trained on, each class weighted so that positives have the share ``--prevalence`` that
they have where the detector is used. The slope of probability = sigmoid(slope * logit + intercept) is fitted (Platt,
1999, in "Advances in Large Margin Classifiers"). The intercept puts 0.5 at the threshold with the best F1: where few
passages support a perspective and the detector is weak, the threshold with the fewest errors says hardly ever Yes, and
counts of covered perspectives would be worth nothing. So probabilities rank, and decide at 0.5; as shares they are too
high by what ``calibrated_intercept`` tells. Writes ``calibration.json`` into the adapter's folder.

Heavy imports wait until the flags are known.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from corpora.artefacts import content_hash, write_atomic

PREVALENCE = 0.17
"""Of the 542 human-labelled pairs of BERDS, from real top passages, 91 are positive (Chen and Choi, 2024)."""
STEPS = 100


def fit(logits: NDArray[np.float64], labels: NDArray[np.bool_], prevalence: float) -> tuple[float, float]:
    """Slope and intercept with the highest weighted likelihood, by Newton's method.

    Args:
        logits: float64 (n,).
        labels: bool (n,), both values present.
        prevalence: The weight of all positives together; the negatives have the rest.

    Raises:
        ValueError: One class is missing, or higher logits do not mean more positives.
    """
    if not 0 < prevalence < 1:
        raise ValueError(f"--prevalence {prevalence}: expected a number between 0 and 1")
    if labels.all() or not labels.any():
        raise ValueError("all pairs have the same label: expected both")
    weights = np.where(labels, prevalence / labels.sum(), (1 - prevalence) / (~labels).sum())
    center, scale = logits.mean(), logits.std() or 1.0
    inputs = np.stack([(logits - center) / scale, np.ones(len(logits))], 1)
    found = np.array([1.0, np.log(prevalence / (1 - prevalence))])
    for _ in range(STEPS):
        chances = 1 / (1 + np.exp(-inputs @ found))
        gradient = inputs.T @ (weights * (chances - labels)) + 1e-6 * found  # a little ridge: separable pairs
        curvature = (inputs * (weights * chances * (1 - chances))[:, None]).T @ inputs + 1e-6 * np.eye(2)
        step = np.linalg.solve(curvature, gradient)
        found = found - step / max(1.0, float(np.abs(step).max()))
        if np.abs(step).max() < 1e-9:
            break
    slope = float(found[0] / scale)
    if slope <= 0:
        raise ValueError("positives do not have higher logits than negatives: this detector has learned nothing")
    return slope, float(found[1] - slope * center)


def best_threshold(logits: NDArray[np.float64], labels: NDArray[np.bool_], prevalence: float) -> float:
    """The logit from which on Yes gives the best F1, midway between two of the pairs; of equal ones the highest.

    Args:
        logits: float64 (n,).
        labels: bool (n,), both values present.
        prevalence: The weight of all positives together.
    """
    weights = np.where(labels, prevalence / labels.sum(), (1 - prevalence) / (~labels).sum())
    order = np.argsort(-logits, kind="stable")
    values = logits[order]
    hits, yes = np.cumsum((weights * labels)[order]), np.cumsum(weights[order])
    f1 = 2 * hits / (yes + prevalence)
    f1[:-1][values[:-1] == values[1:]] = -1.0  # a threshold cannot cut between equal logits
    best = int(np.argmax(f1))
    below = values[best + 1] if best + 1 < len(values) else values[best] - 1.0
    return float((values[best] + below) / 2)


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the flags say; the exit code is 0, or 2 for a user's mistake."""
    parser = argparse.ArgumentParser(
        prog="python -m evaluator.calibration", description="Calibrate an adapter of 'small'."
    )
    parser.add_argument("--adapter", type=Path, required=True, metavar="FOLDER", help="as evaluator.train wrote it")
    parser.add_argument("--pairs", type=Path, required=True, metavar="FILE", help="labelled pairs, not trained on")
    parser.add_argument(
        "--prevalence", type=float, default=PREVALENCE, metavar="P", help="of positives where it is used"
    )
    flags = parser.parse_args(arguments)
    try:
        text = calibrate(flags.adapter, flags.pairs, flags.prevalence)
    except ValueError as error:
        sys.stderr.write(f"error: {' '.join(str(error).split())}\n")
        return 2
    sys.stdout.write(text)
    return 0


def calibrate(adapter: Path, pairs: Path, prevalence: float) -> str:
    """Writes ``calibration.json`` into the adapter's folder; its text.

    Raises:
        ValueError: The adapter or the pairs cannot be read, or do not fit.
    """
    from evaluator.judges.small import CALIBRATION, Small
    from evaluator.pairs import labels_of, read_pairs

    found = read_pairs(pairs)
    labels = np.array(labels_of(found))
    logits = np.full(len(found), np.nan)
    for position, judgement in Small(adapter=adapter).judge([each.pair for each in found]):
        if judgement.status == "ok":
            logits[position] = float(judgement.answer)
    known = ~np.isnan(logits)
    slope, calibrated = fit(logits[known], labels[known], prevalence)
    threshold = best_threshold(logits[known], labels[known], prevalence)
    record = {
        "slope": round(slope, 6),
        "intercept": round(-slope * threshold, 6),
        "calibrated_intercept": round(calibrated, 6),
        "prevalence": prevalence,
        "pairs": int(known.sum()),
        "positive": int(labels[known].sum()),
        "pairs_sha256": content_hash(pairs),
    }
    text = json.dumps(record, indent=1) + "\n"
    write_atomic(adapter / CALIBRATION, text)
    return text


if __name__ == "__main__":
    raise SystemExit(main())
