"""Calibration: against drawn data with known slope, intercept and prevalence."""

from __future__ import annotations

import numpy as np
import pytest

from evaluator.calibration import best_threshold, fit


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


def test_the_threshold_has_the_best_f1_of_all() -> None:
    """Against every threshold tried in turn, at two prevalences, with ties among the logits."""
    rng = np.random.default_rng(3)
    for _ in range(50):
        labels = rng.random(40) < 0.3
        labels[:2] = True, False
        logits = np.round(rng.normal(labels * 1.0, 1.0), 1)
        for prevalence in (float(labels.mean()), 0.1):
            weights = np.where(labels, prevalence / labels.sum(), (1 - prevalence) / (~labels).sum())

            def f1(cut: float, labels=labels, logits=logits, weights=weights) -> float:
                hits, yes = weights[labels & (logits >= cut)].sum(), weights[logits >= cut].sum()
                return 2 * hits / (yes + weights[labels].sum())

            found = best_threshold(logits, labels, prevalence)
            assert f1(found) == pytest.approx(max(f1(cut) for cut in logits))
            assert found not in logits  # so that rounding decides nothing


def test_the_threshold_by_hand() -> None:
    """Yes, Yes, No, Yes, No, No by falling logit: cut after two: F1 2*2/(2+3) = .8; after four: 2*3/(4+3) = .857."""
    logits, labels = np.array([5.0, 4.0, 3.0, 2.0, 1.0, 0.0]), np.array([True, True, False, True, False, False])
    assert best_threshold(logits, labels, 0.5) == 1.5
    # With positives a hundredth: after two 2*(2/300)/(2/300 + 1/100) = .8; after four precision falls to .029
    assert best_threshold(logits, labels, 0.01) == 3.5
