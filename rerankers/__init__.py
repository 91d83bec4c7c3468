"""Rerankers: order a question's pool of passages anew."""

from corpora.registry import Registry
from rerankers.base import Reranker

RERANKERS: Registry[Reranker] = Registry("rerankers", {})

__all__ = ["RERANKERS", "Reranker"]
