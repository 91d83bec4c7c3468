"""Probability samples of a run's pairs: which pairs people label, and with which probability each was drawn.

A sample of which every pair's inclusion probability is known and above 0 gives unbiased totals of the whole run: each
labelled pair counts 1 / probability times (Horvitz and Thompson 1952, https://doi.org/10.1080/01621459.1952.10483446).
Within a stratum all samples of the drawn size are equally likely, so the probability is drawn / there, exactly.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

Key = TypeVar("Key", bound=Hashable)
LEAST = 2
"""Units drawn of each stratum at least, so that its variance can be estimated."""


class Stratum(NamedTuple):
    """Units that are equally likely to be drawn.

    Attributes:
        label: What the run's labels say of its pairs: 1, 0, or -1 unknown.
        first: Rank from which on its pairs stand, counted from 1.
        last: Rank down to which they stand.
    """

    label: int
    first: int
    last: int


def strata_of(labels: NDArray[np.int8], k: int) -> dict[Stratum, NDArray[np.intp]]:
    """The pairs of one ranking's first k ranks by label and rank: 1, 2 and 3, 4 to 7, 8 to 15 and so on.

    Args:
        labels: int8 (n, m).
        k: At most so many ranks.

    Returns:
        Stratum -> int (p, 2): (position, perspective), positions from 0.
    """
    found: dict[Stratum, NDArray[np.intp]] = {}
    first = 1
    while first <= k:
        last = min(2 * first - 1, k)
        for label in (1, 0, -1):
            places = np.argwhere(labels[first - 1 : last] == label)
            places[:, 0] += first - 1
            if len(places):
                found[Stratum(label, first, last)] = places
        first = last + 1
    return found


def allocate(sizes: Mapping[Key, int], shares: Mapping[Key, float], n: int) -> dict[Key, int]:
    """How many units to draw of each stratum: all of them if n allows, at least two of each, else by the shares.

    Args:
        sizes: Stratum -> units in it.
        shares: Stratum -> its part of the sample; they add up to 1.
        n: Units in all.

    Raises:
        ValueError: There are too many strata for n.
    """
    drawn = {each: min(LEAST, size) for each, size in sizes.items()}
    if sum(drawn.values()) > n:
        raise ValueError(f"{n} are too few for {len(sizes)} strata: expected at least {sum(drawn.values())}")
    for _ in range(min(n, sum(sizes.values())) - sum(drawn.values())):
        open_ = [each for each in sizes if drawn[each] < sizes[each]]
        drawn[max(open_, key=lambda each: n * shares[each] - drawn[each])] += 1
    return drawn


def shares_by_label(sizes: Mapping[Stratum, int]) -> dict[Stratum, float]:
    """Half of a sample for pairs that are labelled 1, half for the others; in each half as many as there are.

    Supports are rare, and estimates of how often a judge is right where it says Yes need them.
    """
    supports = sum(size for each, size in sizes.items() if each.label == 1)
    others = sum(sizes.values()) - supports
    half = 0.5 if supports and others else 1.0
    return {each: half * size / (supports if each.label == 1 else others) for each, size in sizes.items()}


def draw(size: int, n: int, random: np.random.Generator) -> NDArray[np.intp]:
    """Positions of n of ``size`` units, every choice equally likely, in ascending order."""
    chosen: NDArray[np.intp] = np.sort(random.permutation(size)[:n])
    return chosen


def in_any_order(items: Sequence[Key], random: np.random.Generator) -> list[Key]:
    """The items in an order that tells nothing."""
    return [items[i] for i in random.permutation(len(items)).tolist()]
