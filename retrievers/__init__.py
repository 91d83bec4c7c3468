"""Retrievers: a corpus becomes an index, queries become rankings."""

from corpora.registry import Registry
from retrievers.base import Index, Retriever

RETRIEVERS: Registry[Retriever] = Registry(
    "retrievers",
    {
        "bm25": "retrievers.bm25:BM25",
        "rank_bm25": "retrievers.rank_bm25:RankBM25",
        "runfile": "retrievers.runfile:RunFile",
    },
)

__all__ = ["RETRIEVERS", "Index", "Retriever"]
