"""How often a judge is wrong: its sensitivity and specificity on labelled pairs, with their uncertainty."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evaluator.pairs import LabelledPair
from evaluator.types import Judgement

MIN_POSITIVES = 30
"""With fewer labelled supports (or non-supports) a rate is not known well enough to correct anything by it."""
MIN_YOUDEN = 0.2
"""Sensitivity + specificity - 1: 0 is a judge that answers at random, whose labels hold nothing to correct."""
_LEAST_YOUDEN = 0.02  # of a single draw: below it the judge would be thought to mean the opposite of what it says


@dataclass(frozen=True, eq=False)
class JudgeErrors:
    """Counts of a judge's right and wrong answers, one row per question of the labelled pairs.

    Attributes:
        positives: float64 (q,), weight of the labelled supports of each question.
        hits: float64 (q,), weight of those that the judge called supports.
        negatives: float64 (q,), weight of the other pairs.
        rejections: float64 (q,), weight of those that the judge did not call supports.
        n_positives: Labelled supports, as pairs.
        n_negatives: Other labelled pairs.
        n_unknown: Pairs without a label or without an answer of the judge; they count nowhere.
    """

    positives: NDArray[np.float64]
    hits: NDArray[np.float64]
    negatives: NDArray[np.float64]
    rejections: NDArray[np.float64]
    n_positives: int
    n_negatives: int
    n_unknown: int = 0

    @classmethod
    def from_pairs(
        cls, pairs: Sequence[LabelledPair], judgements: Sequence[Judgement], threshold: float = 0.5
    ) -> JudgeErrors:
        """Compares labels and judgements; a pair that was drawn with a probability counts by its inverse.

        Args:
            pairs: With labels; the question ids say which pairs belong together.
            judgements: The judge's answer to each pair, in their order.
            threshold: The judge says Yes at this probability or above.

        Raises:
            ValueError: As many judgements as pairs are needed.
        """
        if len(pairs) != len(judgements):
            raise ValueError(f"{len(judgements)} judgements for {len(pairs)} labelled pairs: expected one for each")
        answers = [None if each.probability is None else each.probability >= threshold for each in judgements]
        return cls.from_answers(
            [each.pair.question.question_id for each in pairs],
            [each.label for each in pairs],
            answers,
            [1 / each.inclusion_probability for each in pairs],
        )

    @classmethod
    def from_answers(
        cls,
        questions: Sequence[str],
        labels: Sequence[bool | None],
        answers: Sequence[bool | None],
        weights: Sequence[float] | None = None,
    ) -> JudgeErrors:
        """The same from plain columns: question id, label, answer of the judge, and weight of each pair."""
        known = [
            i for i, (label, answer) in enumerate(zip(labels, answers, strict=True)) if None not in (label, answer)
        ]
        codes = {question: code for code, question in enumerate(dict.fromkeys(questions[i] for i in known))}
        counts = np.zeros((2, 2, len(codes)))
        numbers = np.zeros(2, dtype=np.int64)
        scale = 1.0 if weights is None or not known else sum(weights[i] for i in known) / len(known)
        for i in known:
            label, right = int(bool(labels[i])), int(bool(labels[i]) == bool(answers[i]))
            counts[label, right, codes[questions[i]]] += 1.0 if weights is None else weights[i] / scale
            numbers[label] += 1
        negatives, positives = counts.sum(axis=1)
        return cls(
            positives, counts[1, 1], negatives, counts[0, 1], int(numbers[1]), int(numbers[0]), len(labels) - len(known)
        )

    @property
    def sensitivity(self) -> float:
        """Share of the supports that the judge calls supports, with half a count on either side."""
        return float((self.hits.sum() + 0.5) / (self.positives.sum() + 1))

    @property
    def specificity(self) -> float:
        """Share of the other pairs that the judge does not call supports, with half a count on either side."""
        return float((self.rejections.sum() + 0.5) / (self.negatives.sum() + 1))

    @property
    def youden(self) -> float:
        """Sensitivity + specificity - 1 (Youden 1950): how much an answer tells, from 0 to 1."""
        return self.sensitivity + self.specificity - 1

    def check(self) -> None:
        """Refuses rates that nothing can be corrected by.

        Raises:
            ValueError: Too few labelled supports or other pairs, or a judge that hardly tells them apart.
        """
        for what, n in (("supports", self.n_positives), ("pairs that are no supports", self.n_negatives)):
            if n < MIN_POSITIVES:
                raise ValueError(f"no error-aware scores: {n} labelled {what}, expected {MIN_POSITIVES}: label more")
        if self.youden < MIN_YOUDEN:
            raise ValueError(
                f"no error-aware scores: the judge's Youden index on the labelled pairs is {self.youden:.2f}, expected "
                f"{MIN_YOUDEN} or more: such labels say too little, choose another judge or threshold"
            )

    def draw(self, n: int, random: np.random.Generator) -> NDArray[np.float64]:
        """Draws of sensitivity and specificity, float64 (n, 2).

        The Bayesian bootstrap over questions (Rubin 1981, https://doi.org/10.1214/aos/1176345338), with half a right
        and half a wrong answer added. Where each question has one pair of a kind this is exactly the posterior under
        Jeffreys' prior, Beta(right + 1/2, wrong + 1/2); where the answers within a question are alike, it is as much
        wider as they are. Draws without a positive Youden index are drawn again.

        Raises:
            ValueError: As ``check`` does.
        """
        self.check()
        kept = np.empty((0, 2))
        while len(kept) < n:
            weights = random.exponential(size=(n, len(self.positives)))
            prior = random.gamma(0.5, size=(n, 4))
            sensitivity = (weights @ self.hits + prior[:, 0]) / (weights @ self.positives + prior[:, :2].sum(axis=1))
            specificity = (weights @ self.rejections + prior[:, 2]) / (
                weights @ self.negatives + prior[:, 2:].sum(axis=1)
            )
            drawn = np.stack([sensitivity, specificity], axis=1)
            kept = np.concatenate([kept, drawn[drawn.sum(axis=1) > 1 + _LEAST_YOUDEN]])
        return kept[:n]
