"""The judge that ``small`` has to beat: the cosine similarity of passage and perspective by the same all-MiniLM-L6-v2.

python -m evaluator.agreement --judge small --judge tests.evaluator.cosine:Cosine --judge-args cut=0.40 --pairs FILE
"""

from __future__ import annotations

from functools import cached_property

from corpora.types import Passage, Query
from evaluator.types import Judgement, document
from lm import make_encoder


class Cosine:
    """Says Yes from a cosine on; its probability is (1 + cosine - cut) / 2, which is 1/2 there and keeps the order.

    Args:
        cut: From this cosine on.
    """

    def __init__(self, cut: float = 0.4) -> None:
        self.cut = cut

    @cached_property
    def encoder(self):
        return make_encoder("minilm")

    def render(self, pair):
        return f"{document(pair.passage)}\n\n{pair.perspective.text}"

    def judge(self, pairs):
        passages = self.encoder.encode_passages([Passage(str(i), document(p.passage)) for i, p in enumerate(pairs)])
        asked = [Query(str(i), str(i), pair.perspective.text) for i, pair in enumerate(pairs)]
        perspectives = self.encoder.encode_queries(asked).vectors
        for i, cosine in enumerate((passages * perspectives).sum(1).tolist()):
            yield i, Judgement("ok", min(1.0, max(0.0, (1 + cosine - self.cut) / 2)), f"{cosine:.3f}")
