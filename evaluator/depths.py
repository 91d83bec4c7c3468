"""How deep a run is labelled: what metrics need, and what a label table has.

Most metrics read every label down to their cut-off. Those that declare ``until_covered`` (CoverageDepth, Covered,
MRecall ...) read the labels of a perspective only down to the first passage that supports it, so a judge need not be
asked about that perspective any further. A run is therefore labelled completely down to one rank, ``full``, and from
there to another one, ``reach``, only until each perspective is covered.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from evaluator.metric import Metric


@dataclass(frozen=True, slots=True)
class Depths:
    """Down to which ranks labels are needed, or there.

    Attributes:
        full: Every label of these first ranks.
        reach: Below, down to this rank, the labels of each perspective until it is covered; never above ``full``.
    """

    full: int
    reach: int

    def __post_init__(self) -> None:
        if not 0 <= self.full <= self.reach:
            raise ValueError(f"labels complete to rank {self.full}, but only to rank {self.reach} at all")

    @property
    def lazy(self) -> bool:
        """Whether some labels may be left out."""
        return self.full < self.reach

    def cover(self, other: Depths) -> bool:
        """Whether whoever needs ``other`` finds it here."""
        return self.full >= other.full and self.reach >= other.reach

    def __or__(self, other: Depths) -> Depths:
        """What serves both."""
        return Depths(max(self.full, other.full), max(self.reach, other.reach))


def needed(metrics: Iterable[Metric], whole: int) -> Depths:
    """The depths that these metrics need.

    Args:
        metrics: What will be computed; none: everything, completely.
        whole: The depth of the rankings, for metrics without a cut-off.
    """
    found = [(metric.until_covered, whole if metric.depth is None else metric.depth) for metric in metrics]
    full = max((depth for until_covered, depth in found if not until_covered), default=0 if found else whole)
    return Depths(full, max((depth for _, depth in found), default=whole))
