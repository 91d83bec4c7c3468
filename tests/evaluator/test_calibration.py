"""Calibration: against drawn data with known slope, intercept and prevalence."""

from __future__ import annotations

import numpy as np
import pytest

from evaluator.calibration import fit


def drawn(n: int, slope: float, intercept: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    logits = rng.normal(1.0, 3.0, n)
    return logits, rng.random(n) < 1 / (1 + np.exp(-(slope * logits + intercept)))


def test_finds_the_slope_and_intercept_that_the_labels_were_drawn_with() -> None:
    logits, labels = drawn(200_000, 0.7, -1.5)
    assert fit(logits, labels, float(labels.mean())) == pytest.approx((0.7, -1.5), abs=0.03)


def test_another_prevalence_moves_the_intercept_by_the_change_in_log_odds() -> None:
    logits, labels = drawn(200_000, 0.7, -1.5)
    rate = labels.mean()
    slope, intercept = fit(logits, labels, 0.17)
    shift = np.log(0.17 / 0.83) - np.log(rate / (1 - rate))  # Bayes: p(logit | class) stays as it is
    assert slope == pytest.approx(0.7, abs=0.03)
    assert intercept == pytest.approx(-1.5 + shift, abs=0.05)


def test_probabilities_have_the_mean_asked_for() -> None:
    logits, labels = drawn(2_000, 0.5, 0.3, seed=1)
    slope, intercept = fit(logits, labels, 0.25)
    chances = 1 / (1 + np.exp(-(slope * logits + intercept)))
    weighted = 0.25 * chances[labels].mean() + 0.75 * chances[~labels].mean()
    assert weighted == pytest.approx(0.25, abs=1e-4)


def test_pairs_that_are_told_apart_perfectly_give_finite_numbers() -> None:
    slope, intercept = fit(np.array([-1.0, -2.0, 3.0, 4.0]), np.array([False, False, True, True]), 0.5)
    assert np.isfinite([slope, intercept]).all()
    assert slope > 1


@pytest.mark.parametrize(
    ("logits", "labels", "prevalence", "message"),
    [
        ([0.0, 1.0], [True, True], 0.2, "same label"),
        ([0.0, 1.0], [False, True], 1.0, "prevalence"),
        ([1.0, 0.9, 0.0, 0.1], [False, False, True, True], 0.5, "learned nothing"),
    ],
)
def test_refuses_what_cannot_be_fitted(
    logits: list[float], labels: list[bool], prevalence: float, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        fit(np.array(logits), np.array(labels), prevalence)
