"""Judges: decide whether a passage supports a perspective."""

from corpora.registry import Registry
from evaluator.judges.base import Judge

JUDGES: Registry[Judge] = Registry(
    "judges",
    {
        "llm": "evaluator.judges.llm:Llm",
        "mistral": "evaluator.judges.mistral:Mistral",
        "nli": "evaluator.judges.nli:Nli",
        "small": "evaluator.judges.small:Small",
    },
    extras={"llm": "llm", "mistral": "judge", "nli": "judge", "small": "judge"},
)

__all__ = ["JUDGES", "Judge"]
