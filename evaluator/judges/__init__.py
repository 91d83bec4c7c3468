"""Judges: decide whether a passage supports a perspective."""

from corpora.registry import Registry
from evaluator.judges.base import Judge

JUDGES: Registry[Judge] = Registry("judges", {})

__all__ = ["JUDGES", "Judge"]
