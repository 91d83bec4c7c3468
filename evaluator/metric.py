"""What every metric is: a name that can be parsed, what it needs, and a value for the labels of one question."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import ClassVar, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from corpora.types import Stance

Labels: TypeAlias = NDArray[np.int8]
"""int8 (k, m) in {1, 0, -1 unknown}: does the passage at rank i + 1 support perspective j?"""

Stances: TypeAlias = Sequence[Stance | None]
"""One stance per perspective, in the order of the columns."""


@dataclass(frozen=True)
class Metric:
    """A pure function of the labels of one question; subclasses define ``_value``.

    ``str(metric)`` is its name as printed: ``alpha_nDCG@10``, or ``alpha_nDCG(alpha=0.9)@10``. A parameter is printed
    where it was given or differs from its default, so that ``str(parse(name)) == name`` for every name in the
    registry's spelling. Metrics that differ in the spelling only are equal.

    Attributes:
        k: The cut-off: how many of the first ranks count; None where the metric reads the whole ranking.
        given: Names of parameters that are printed although they have their default value.
        title: The name without parameters and cut-off.
        cutoff: Whether ``@k`` is required, optional or not allowed.
        default_k: Taken where a required cut-off is left out; None: it may not be left out.
        needs: ``pool`` where the labels of passages that were not retrieved count too.
        until_covered: Labels of a perspective below the first passage that supports it do not matter (so they need
            not be judged).
        monotone: One more support never lowers the value, so unknown labels taken as supports give an upper bound.
        higher_is_better: None where neither end is better as such.
    """

    k: int | None = None
    given: tuple[str, ...] = field(default=(), compare=False, repr=False, kw_only=True)

    title: ClassVar[str]
    cutoff: ClassVar[Literal["required", "optional", "none"]] = "required"
    default_k: ClassVar[int | None] = None
    needs: ClassVar[Literal["ranking", "pool"]] = "ranking"
    until_covered: ClassVar[bool] = False
    monotone: ClassVar[bool] = False
    higher_is_better: ClassVar[bool | None] = True

    def __post_init__(self) -> None:
        if self.cutoff == "none" and self.k is not None:
            raise ValueError(f"{self.title}@{self.k}: {self.title} takes no cut-off: write {self.title}")
        if self.cutoff == "required" and self.k is None:
            if self.default_k is None:
                raise ValueError(f"{self.title} needs a cut-off: write for example {self.title}@5")
            object.__setattr__(self, "k", self.default_k)
        if self.k is not None and self.k < 1:
            raise ValueError(f"{self.title}@{self.k}: the cut-off must be at least 1")
        self._check()

    @classmethod
    def parameters(cls) -> dict[str, float]:
        """Parameters of the metric and their default values."""
        return {f.name: f.default for f in fields(cls) if f.name not in ("k", "given")}  # type: ignore[misc]

    @property
    def plain_name(self) -> str:
        """The name without parameters that only repeat a default: the same for all spellings of a metric."""
        return replace(self, given=()).name

    @property
    def name(self) -> str:
        """The name as printed."""
        shown = [
            f"{key}={_number(getattr(self, key))}"
            for key, default in self.parameters().items()
            if key in self.given or getattr(self, key) != default
        ]
        return f"{self.title}{'(' + ','.join(shown) + ')' if shown else ''}{'' if self.k is None else f'@{self.k}'}"

    def __str__(self) -> str:
        return self.name

    @property
    def depth(self) -> int | None:
        """How many ranks the metric consults; None: all."""
        return self.k

    def score(self, labels: Labels, pool: Labels | None = None, stances: Stances | None = None) -> float:
        """The value for one question; NaN where the metric is undefined.

        Args:
            labels: int8 (k, m), the retrieved passages in rank order; k may be 0.
            pool: int8 (p, m), every passage that has a label for the question, retrieved or not. Where several
                passages would serve the ideal ranking equally well, the earlier row is taken: order the rows by
                descending passage id to get the values of NIST's ndeval.
            stances: One per column; only the metrics of binary questions read it.

        Raises:
            ValueError: Where the shapes do not fit, or the metric needs a pool and got none.
        """
        if labels.ndim != 2:
            raise ValueError(f"{self}: labels must have the shape (passages, perspectives), got {labels.shape}")
        if self.needs == "pool":
            if pool is None:
                raise ValueError(f"{self} has nothing to normalise by: it needs qrels")
            if pool.ndim != 2 or pool.shape[1] != labels.shape[1]:
                raise ValueError(f"{self}: labels {labels.shape} and pool {pool.shape} must have the same perspectives")
        if stances is not None and len(stances) != labels.shape[1]:
            raise ValueError(f"{self}: {len(stances)} stances for {labels.shape[1]} perspectives")
        return self._value(labels, pool, stances) if labels.shape[1] else math.nan

    def _check(self) -> None:
        """Refuses parameters that make no sense."""

    def _value(self, labels: Labels, pool: Labels | None, stances: Stances | None) -> float:
        """The value where there is at least one perspective."""
        raise NotImplementedError


def _number(value: float) -> str:
    """Writes 0.5 as 0.5 and 1.0 as 1."""
    return str(int(value)) if value == int(value) else repr(value)


def drop_unsupported(labels: Labels, pool: Labels) -> tuple[Labels, Labels]:
    """Leaves out the perspectives that no passage of the pool supports, as NIST's ndeval does.

    BERDS counts such perspectives (no system can then reach 1); ndeval does not know them.

    Args:
        labels: int8 (k, m).
        pool: int8 (p, m).

    Returns:
        Both with the remaining columns only, possibly none.
    """
    kept = supported(pool)
    return (labels, pool) if kept.all() else (labels[:, kept], pool[:, kept])


def supported(pool: Labels) -> NDArray[np.bool_]:
    """Bool (m,): which perspectives some passage of the pool, int8 (p, m), supports."""
    return np.asarray((pool == 1).any(axis=0))
