"""Ground floor: what is searched, and the words that everybody shares."""

from corpora.base import Corpus
from corpora.registry import Registry

CORPORA: Registry[Corpus] = Registry(
    "corpora",
    {
        "demo": "corpora.demo:Demo",
        "hub": "corpora.hub:Hub",
        "jsonl": "corpora.jsonl:Jsonl",
        "sphere": "corpora.sphere:Sphere",
        "wikipedia": "corpora.wikipedia:Wikipedia",
    },
    extras={"hub": "hub"},
)

__all__ = ["CORPORA", "Corpus"]
