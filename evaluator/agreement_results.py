"""From labels and answers to one document: what ``python -m evaluator.agreement --json`` prints."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from evaluator.agreement_statistics import (
    MEASURES,
    Estimate,
    Floats,
    Sample,
    Statistic,
    agreement,
    difference,
    estimate,
    random_answers,
)
from evaluator.judgements import Counts
from evaluator.pairs import LabelledPair, labels_of
from evaluator.probes import Flips, Probe, by_stance, flips, length_buckets

SCHEMA_VERSION = 1
PUBLISHED = (
    ("T5-11B NLI", 7.2, 85.2, 38.5),
    ("Llama-2-13b-chat", 31.1, 70.7, 42.6),
    ("Llama-2-70b-chat", 27.4, 77.7, 52.6),
    ("Zephyr", 22.4, 80.6, 53.3),
    ("Gemma", 58.4, 48.9, 37.2),
    ("Mistral-7B, zero-shot", 19.2, 82.2, 52.0),
    ("GPT-4, zero-shot", 17.4, 87.6, 65.6),
    ("GPT-4, one-shot", 15.4, 89.1, 67.8),
    ("Mistral-7B, fine-tuned", 15.8, 87.6, 62.2),
    ("random", 16.8, 72.1, 16.9),
    ("another human (176 pairs)", 22.7, 85.2, 65.8),
)
"""Table 7 of Chen and Choi 2024 (https://arxiv.org/abs/2409.18110): predicted positive, accuracy and F1 in percent."""


@dataclass(frozen=True, slots=True, eq=False)
class Answers:
    """What one judge answered.

    Attributes:
        name: As printed.
        fingerprint: The judge's.
        probabilities: float64 (n,), of the labelled pairs; NaN where unparsed.
        probed: float64 (c, 2), of the probes' couples, before and after, one probe after the other.
        counts: How the answers came about.
    """

    name: str
    fingerprint: str
    probabilities: Floats
    probed: Floats
    counts: Counts


@dataclass(frozen=True, slots=True)
class Settings:
    """How answers are read and intervals made; the same for all judges."""

    threshold: float = 0.5
    resamples: int = 10_000
    seed: int = 0


class Measured:
    """Labelled pairs, ready for estimates."""

    def __init__(self, pairs: Sequence[LabelledPair], settings: Settings) -> None:
        questions = [each.pair.question.question_id for each in pairs]
        inclusion = [each.inclusion_probability for each in pairs]
        self.pairs, self.settings = pairs, settings
        self.sample = Sample.of(labels_of(pairs), questions, inclusion)

    def document(self, judges: Sequence[Answers], probes: Sequence[Probe]) -> dict[str, object]:
        """Everything that was found, as JSON has it; shares in [0, 1], undefined values None."""
        sample = self.sample
        certain = np.ones(len(sample.labels))
        baselines = {
            "random": random_answers(sample),
            "always Yes": agreement(sample, certain),
            "always No": agreement(sample, 0 * certain),
        }
        found: dict[str, object] = {
            "schema_version": SCHEMA_VERSION,
            "pairs": len(sample.labels),
            "questions": sample.n_questions,
            "labelled_yes": int(sample.labels.sum()),
            "weighted": bool((sample.weights != 1).any()),
            "threshold": self.settings.threshold,
            "resamples": self.settings.resamples,
            "seed": self.settings.seed,
            "judges": [self._judge(each) for each in judges],
            "baselines": {name: self._estimates(statistic) for name, statistic in baselines.items()},
            "differences": [self._difference(judges[0], each) for each in judges[1:]],
            "published": [dict(zip(("name", *MEASURES[:3]), row, strict=True)) for row in PUBLISHED],
        }
        if probes:
            found["probes"] = [self._probes(each, probes) for each in judges]
        return found

    def _estimates(self, statistic: Statistic, names: Sequence[str] | None = None) -> dict[str, object]:
        found = estimate(statistic, self.sample.n_questions, self.settings.resamples, self.settings.seed)
        return {name: entry(found[name]) for name in names or found}

    def _judge(self, answers: Answers) -> dict[str, object]:
        unparsed = np.isnan(answers.probabilities)
        counts = answers.counts
        return {
            "name": answers.name,
            "fingerprint": answers.fingerprint,
            "judging": {"needed": counts.needed, "reused": counts.reused, "judged": counts.judged}
            | {"cost_usd": counts.cost_usd},
            "n_unparsed": int(unparsed.sum()),
            "n_unparsed_labelled_yes": int((unparsed & self.sample.labels).sum()),
            "measures": self._estimates(agreement(self.sample, answers.probabilities, self.settings.threshold)),
        }

    def _difference(self, first: Answers, second: Answers) -> dict[str, object]:
        """The second judge against the first, on the pairs that both answered."""
        sample, threshold = self.sample, self.settings.threshold
        a, b = first.probabilities, second.probabilities
        both = ~(np.isnan(a) | np.isnan(b))
        shared = sample.part(both)
        one, other = (agreement(shared, each[both], threshold) for each in (a, b))
        # The first judge's answers in the place of the labels: how far do the two agree with each other?
        mutual = agreement(replace(shared, labels=a[both] >= threshold), b[both], threshold)
        between = self._estimates(mutual, ("accuracy", "kappa"))
        return {
            "first": first.name,
            "second": second.name,
            "pairs": int(both.sum()),
            "answered_by_one": int((np.isnan(a) != np.isnan(b)).sum()),
            "other_labels": int((both & ((a >= threshold) != (b >= threshold))).sum()),
            "same_label": between["accuracy"],
            "kappa_of_both": between["kappa"],
            "first_measures": self._estimates(one, MEASURES),
            "second_measures": self._estimates(other, MEASURES),
            "measures": self._estimates(difference(one, other), MEASURES),
        }

    def _probes(self, answers: Answers, probes: Sequence[Probe]) -> dict[str, object]:
        changes, start = [], 0
        for probe in probes:
            before, after = answers.probed[start : start + len(probe.couples)].T
            start += len(probe.couples)
            questions = [self.pairs[couple.index].pair.question.question_id for couple in probe.couples]
            settings = self.settings
            found = flips(probe, before, after, questions, settings.threshold, settings.resamples)
            changes.append(_changes(probe, found))
        return {
            "judge": answers.name,
            "changes": changes,
            "lengths": self._parts(answers.probabilities, length_buckets(self.pairs)),
            "stances": self._parts(answers.probabilities, list(by_stance(self.pairs).items())),
        }

    def _parts(self, probabilities: Floats, parts: Sequence[tuple[str, NDArray[np.bool_]]]) -> list[dict[str, object]]:
        """The measures of each part, and of the last minus the first; empty where nothing can be compared."""
        filled = [(name, members) for name, members in parts if members.any()]
        if len(filled) < 2:
            return []
        threshold, rows = self.settings.threshold, []
        statistics = [agreement(self.sample.part(each), probabilities[each], threshold) for _, each in filled]
        for (name, members), statistic in zip(filled, statistics, strict=True):
            yes = self.sample.labels & members
            row = {"name": name, "pairs": int(members.sum()), "labelled_yes": int(yes.sum())}
            row |= {"n_unparsed": int((members & np.isnan(probabilities)).sum())}
            rows.append(row | {"measures": self._estimates(statistic, MEASURES)})
        contrast = self._estimates(difference(statistics[0], statistics[-1]), MEASURES)
        return [*rows, {"name": f"{filled[-1][0]} minus {filled[0][0]}", "measures": contrast}]


def entry(found: Estimate) -> dict[str, float | int | None]:
    """An estimate as JSON has it."""
    ends = (found.value, found.low, found.high)
    shown: Mapping[str, float | int | None] = dict(
        zip(("value", "low", "high"), (None if math.isnan(each) else each for each in ends), strict=True)
    )
    return {**shown, "undefined_resamples": found.undefined}


def _changes(probe: Probe, found: Flips) -> dict[str, object]:
    names = ("yes_before", "yes_after", "yes_to_no", "no_to_yes")
    return {
        "name": probe.name,
        "ideal": probe.ideal,
        "scope": probe.scope,
        "pairs": found.n,
        "n_unparsed": found.unparsed,
        "counts": dict(zip(names, found.counts, strict=True)),
        "yes_before": entry(found.yes_before),
        "yes_after": entry(found.yes_after),
        "flipped": entry(found.flipped),
        "yes_to_no": entry(found.lost),
        "no_to_yes": entry(found.won),
    }
