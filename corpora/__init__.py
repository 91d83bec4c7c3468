"""Ground floor: what is searched, and the words that everybody shares."""

from corpora.base import Corpus
from corpora.registry import Registry

CORPORA: Registry[Corpus] = Registry("corpora", {"demo": "corpora.demo:Demo", "jsonl": "corpora.jsonl:Jsonl"})

__all__ = ["CORPORA", "Corpus"]
