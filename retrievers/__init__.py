"""Retrievers: a corpus becomes an index, queries become rankings."""

from corpora.registry import Registry
from retrievers.base import Index, Retriever
from retrievers.expansion import Expander

RETRIEVERS: Registry[Retriever] = Registry(
    "retrievers",
    {
        "bm25": "retrievers.bm25:BM25",
        "contriever": "retrievers.contriever:Contriever",
        "dense": "retrievers.dense:Dense",
        "dpr": "retrievers.dpr:DPR",
        "hybrid": "retrievers.hybrid:Hybrid",
        "lucene": "retrievers.lucene:Lucene",
        "pyserini_dense": "retrievers.pyserini_dense:PyseriniDense",
        "rank_bm25": "retrievers.rank_bm25:RankBM25",
        "runfile": "retrievers.runfile:RunFile",
        "sentence_transformer": "retrievers.sentence_transformer:SentenceTransformer",
        "sphere_dense": "retrievers.sphere_dense:SphereDense",
        "terrier": "retrievers.terrier:Terrier",
    },
    extras={
        "contriever": "dense",
        "dense": "dense",
        "dpr": "dense",
        "lucene": "lucene",
        "pyserini_dense": "dense,lucene",
        "sentence_transformer": "dense",
        "sphere_dense": "dense",
        "terrier": "terrier",
    },
)

EXPANDERS: Registry[Expander] = Registry(
    "expanders",
    {
        "file": "retrievers.expansion:File",
        "hyde": "retrievers.llm_expansion:HyDE",
        "llm": "retrievers.llm_expansion:LlmExpander",
    },
    extras={"hyde": "llm", "llm": "llm"},
)

__all__ = ["EXPANDERS", "RETRIEVERS", "Expander", "Index", "Retriever"]
