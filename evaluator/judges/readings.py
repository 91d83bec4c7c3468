"""Yes or No: how a language model's answer becomes a judgement, from probabilities or as the authors of BERDS read it.

Chen and Choi, 2024, https://arxiv.org/abs/2409.18110; the published reading is that of their code
(https://github.com/timchen0618/berds, Eval/prediction_mistral.py), in our words.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from evaluator.types import Judgement
from lm.causal import Scored

WORDS = (("yes", "Yes", "YES"), ("no", "No", "NO"))
"""Spellings of the two answers; each counts with a blank before it too."""
_STARTS = ("yes", "(yes", "true", "entail")
_ENDS = ("yes", "yes.", 'yes".')
_LEADS = ("Answer:", "The answer is", "Based on the information provided in the document, the answer is")


def read_scores(scored: Scored) -> Judgement:
    """P(yes) / (P(yes) + P(no)); unparsed where another word is more probable than either."""
    yes, no = (math.exp(each) for each in scored.log_probabilities)
    answer = f"{scored.text.strip()!r}, P(yes)+P(no)={yes + no:.3g}"
    if scored.label is None:
        return Judgement("unparsed", None, answer, 0.0)
    difference = scored.log_probabilities[1] - scored.log_probabilities[0]
    return Judgement("ok", 1 / (1 + math.exp(min(difference, 700.0))), answer, 0.0)


def read_answer(answer: str) -> Judgement:
    """A generated answer as the authors read it: whatever they do not take for Yes is No.

    So ``the answer is not yes`` is Yes, and ``**Yes**`` is No. Nothing at all, and an object in braces, which breaks
    their code, are unparsed.
    """
    text = answer.strip()
    if not text or text.startswith("{"):
        return Judgement("unparsed", None, answer, 0.0)
    for lead in _LEADS:
        text = text.rpartition(lead)[2]
    text = text.strip().lower()
    yes = text.startswith(_STARTS) or text in ("y", "ye") or text.endswith(_ENDS)
    return Judgement("ok", float(yes), answer, 0.0)


@dataclass(frozen=True, slots=True)
class Difference:
    """How the two ways of reading an answer differ.

    Attributes:
        n: Pairs.
        n_unparsed: Pairs without a label one way or the other: their first token is neither Yes nor No, say.
        n_differ: Of the others, pairs with another label when the answer is generated and read as published.
    """

    n: int
    n_unparsed: int
    n_differ: int

    @property
    def share(self) -> float:
        """Of the labels that both give, how many differ; NaN where there is none."""
        both = self.n - self.n_unparsed
        return self.n_differ / both if both else math.nan
