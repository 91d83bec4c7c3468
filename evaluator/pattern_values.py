"""Values of metrics for very many drawn label matrices: each different matrix is scored once and remembered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from evaluator.metric import Metric, Stances
from evaluator.prevalence import Bits, Floats

_EXACT_BITS = 42  # which leaves 21 bits for the number of the stances
_REMEMBERED = 200_000


class PatternValues:
    """Scores drawn labels of questions of any shapes.

    Args:
        metrics: None of them may need a pool.
        stances: One tuple per question (or None), in the order in which questions are numbered.

    Attributes:
        n: Questions.
    """

    def __init__(self, metrics: Sequence[Metric], stances: Sequence[Stances | None]) -> None:
        self.metrics, self.n = metrics, len(stances)
        keys = [None if each is None else tuple(each) for each in stances]
        numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
        self._side_of = np.array([numbers[key] for key in keys], dtype=np.int64)
        self._sides = list(numbers)
        self._known: dict[tuple[int, int, tuple[int, ...]], dict[int, tuple[float, ...]]] = {}
        self._factors: dict[int, NDArray[np.int64]] = {}

    def score(self, questions: NDArray[np.intp], labels: Bits) -> Floats:
        """Values of all metrics.

        Args:
            questions: int (n,), their numbers.
            labels: uint8 (draws, n, k, m).

        Returns:
            float64 (metrics, draws, n), NaN where undefined.
        """
        draws, n, k, m = labels.shape
        values = np.empty((len(self.metrics), draws * n))
        sides = np.tile(self._side_of[questions], draws)
        for depth, chosen in self._by_depth(k).items():
            matrices = self._sorted(labels[:, :, :depth].reshape(draws * n, depth, m), sides)
            factors = self._bits(depth * m)
            codes = matrices @ factors[:-1] + sides * factors[-1]
            unique, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
            known = self._known.setdefault((depth, m, tuple(chosen)), {})
            if len(known) > _REMEMBERED:
                known.clear()
            table = np.empty((len(unique), len(chosen)))
            for i, code in enumerate(unique.tolist()):
                found = known.get(code)
                if found is None:
                    matrix = matrices[first[i]].reshape(depth, m).astype(np.int8)
                    side = self._sides[int(sides[first[i]])]
                    found = known[code] = tuple(self.metrics[j].score(matrix, None, side) for j in chosen)
                table[i] = found
            values[chosen] = table[inverse.ravel()].T
        return values.reshape(len(self.metrics), draws, n)

    def _sorted(self, matrices: Bits, sides: NDArray[np.int64]) -> Bits:
        """The matrices, one a row; of three or more perspectives without stances, put in one order: none is special.

        So far fewer matrices differ, up to m! times.
        """
        n, depth, m = matrices.shape
        alike = np.array([side is None or len(set(side)) <= 1 for side in self._sides])[sides]
        if m > 2 and alike.any():
            codes = np.einsum("nkm,k->nm", matrices.astype(np.int64), self._bits(depth)[:-1])
            codes[~alike] = np.arange(m)
            matrices = np.take_along_axis(matrices, np.argsort(codes, axis=1, kind="stable")[:, None, :], axis=2)
        return matrices.reshape(n, depth * m)

    def _by_depth(self, k: int) -> Mapping[int, list[int]]:
        """Rows that count of k rows, and the metrics that read so many of them."""
        depths: dict[int, list[int]] = {}
        for j, metric in enumerate(self.metrics):
            depths.setdefault(k if metric.depth is None else min(metric.depth, k), []).append(j)
        return depths

    def _bits(self, size: int) -> NDArray[np.int64]:
        """Factors of so many bits and of the stances, that give all different matrices different numbers.

        Beyond 42 bits they do so almost surely: two of a million random 63-bit numbers agree once in ten million times.
        """
        if size not in self._factors:
            powers = np.int64(1) << np.arange(min(size, _EXACT_BITS) + 1, dtype=np.int64)
            random = np.random.default_rng(size).integers(-(1 << 62), 1 << 62, size + 1, dtype=np.int64) * 2 + 1
            self._factors[size] = powers if size <= _EXACT_BITS else random
        return self._factors[size]
