"""A judge by natural language inference: does the passage, as the premise, entail the perspective, as the hypothesis?

Two kinds of models, told apart by their configuration:

* Sequence-to-sequence in the manner of TRUE (Honovich and others, 2022, https://arxiv.org/abs/2204.04991): the model
  reads ``premise: ... hypothesis: ...`` and answers 1 or 0. Its T5-11B, ``google/t5_xxl_true_nli_mixture``, is the
  baseline "T5-11B NLI" of Table 7 of BERDS (https://arxiv.org/abs/2409.18110). The probability is that of the first
  token of 1 against that of 0, by one step of the decoder; where another token is more probable than both, the answer
  is unparsed.
* Any sequence-classification model with a label for entailment. The probability is that label's after softmax over
  all labels, so that the threshold 0.5 asks for more than the largest of three.

The default is a DeBERTa-v3-large trained on five NLI collections (0.9 GB, https://arxiv.org/abs/2006.03654,
https://huggingface.co/MoritzLaurer/DeBERTa-v3-large-mnli-fever-anli-ling-wanli), because TRUE's model is a download of
45 GB; ``model=google/t5_xxl_true_nli_mixture dtype=bf16`` is what the paper compares with, on a GPU with 24 GB or more.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from corpora.fingerprint import digest
from evaluator.types import Judgement, Pair, document
from lm.batching import check_sizes
from lm.cross_encoder import CrossEncoder
from lm.seq2seq import Seq2Seq
from lm.source import Source
from lm.transformer import DTYPES, Dtype, read_config

MODEL = "MoritzLaurer/DeBERTa-v3-large-mnli-fever-anli-ling-wanli"
TRUE = "google/t5_xxl_true_nli_mixture"
PINNED = {
    MODEL: "05de80a7216c05a616667f65cf61669b261314ea",
    TRUE: "fb749b87addb9ed3c2b9f3c23c127aeac6e68bd9",  # main has pickles only: the hub bot's conversion of them
}
"""The revisions of models that are given without one."""
ANSWERS = ("1", "0")
TOO_LONG = "the perspective does not fit into the model's input"

_MARKER = re.compile(r"\b(premise|hypothesis)\s*:", re.IGNORECASE)


class Nli:
    """Judges by an NLI model; a passage is cut from its end where both are too long, the perspective never is.

    A perspective that leaves no room for a passage is not judged (unparsed).

    Args:
        model: Model id of the hub, or a local folder.
        revision: Branch, tag or commit; None: the pinned one of ``PINNED``, else ``main``.
        entailment: Name or index of the label that means entailment; None: the one whose name begins with "entail".
        max_length: Tokens of premise and hypothesis; None: what the model takes.
        dtype: ``fp32``, ``bf16`` or ``fp16``.
        device: None: all GPUs, else the CPU; ``cpu``, ``cuda`` (all), ``cuda:1``, ``cuda:0,cuda:2``.
        batch_size: At most this many pairs at a time.
        batch_tokens: At most this many tokens at a time, padding included; None: 2048 on a CPU, 65536 on a GPU.
    """

    version: ClassVar[int] = 1
    runtime_args: ClassVar[tuple[str, ...]] = ("device", "batch_size", "batch_tokens")

    def __init__(
        self,
        model: str | Path = MODEL,
        revision: str | None = None,
        entailment: str | int | None = None,
        max_length: int | None = None,
        dtype: Dtype = "fp32",
        device: str | None = None,
        batch_size: int = 256,
        batch_tokens: int | None = None,
    ) -> None:
        if dtype not in DTYPES:
            raise ValueError(f"dtype={dtype}: expected one of {', '.join(DTYPES)}")
        check_sizes(max_length=max_length, batch_size=batch_size, batch_tokens=batch_tokens)
        self.model, self.revision, self.entailment = model, revision, entailment
        self.max_length, self.dtype = max_length, dtype
        self.device, self.batch_size, self.batch_tokens = device, batch_size, batch_tokens

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the model (id and commit, or content) and of all arguments that change an answer."""
        versions = [self.version, CrossEncoder.version, Seq2Seq.version]
        return digest(["Nli", versions, self._source.identity, self.entailment, self.max_length, self.dtype])

    def prefetch(self) -> None:
        """Downloads the model, as far as it is not cached."""
        self._source.prefetch()

    def render(self, pair: Pair) -> str:
        """Premise and hypothesis as a JSON list, which no text can pretend to be."""
        return json.dumps([document(pair.passage), pair.perspective.text], ensure_ascii=False)

    def judge(self, pairs: Sequence[Pair]) -> Iterator[tuple[int, Judgement]]:
        """(position, judgement), batch by batch as they finish."""
        if not pairs:
            return
        texts = [(document(pair.passage), pair.perspective.text) for pair in pairs]
        for positions, found in self._scores(texts):
            answers = self._answers(found) if self._generates else self._labels(found)
            yield from zip(positions, answers, strict=True)

    def _scores(self, texts: Sequence[tuple[str, str]]) -> Iterator[tuple[list[int], NDArray[np.float32]]]:
        if not self._generates:
            return self._classifier.scores(texts)
        return self._generator.scores([prompt(premise, hypothesis) for premise, hypothesis in texts])

    def _answers(self, found: NDArray[np.float32]) -> Iterator[Judgement]:
        """From the log-probabilities of 1 and 0, and the most probable token."""
        words = dict(zip(self._generator.word_ids, ANSWERS, strict=True))
        for yes, no, token in found.tolist():
            if np.isnan(token):
                yield Judgement("unparsed", None, TOO_LONG, 0.0)
            elif int(token) not in words:
                yield Judgement("unparsed", None, self._generator.decode(int(token)), 0.0)
            else:
                yield Judgement("ok", float(1 / (1 + np.exp(no - yes))), words[int(token)], 0.0)

    def _labels(self, logits: NDArray[np.float32]) -> Iterator[Judgement]:
        labels, index = self._classifier.labels, self._entailment
        for row in logits.astype(np.float64):
            if np.isnan(row).all():
                yield Judgement("unparsed", None, TOO_LONG, 0.0)
                continue
            if len(labels) == 1:  # a single output is the log-odds
                row = np.array([row[0], 0.0])
            shares = np.exp(row - row.max())
            answer = labels[int(row.argmax())] if len(labels) > 1 else ""
            yield Judgement("ok", float(shares[index] / shares.sum()), answer, 0.0)

    @cached_property
    def _entailment(self) -> int:
        return find_entailment(self._classifier.labels, self.entailment, str(self.model))

    @cached_property
    def _source(self) -> Source:
        known = None if Path(self.model).is_dir() else PINNED.get(str(self.model))
        return Source(self.model, self.revision or known)

    @cached_property
    def _generates(self) -> bool:
        config = read_config(self._source.folder)
        kind = (config.architectures or [""])[0]
        generates = bool(config.is_encoder_decoder) and not kind.endswith("ForSequenceClassification")
        if generates and self.entailment is not None:
            raise ValueError(
                f"entailment={self.entailment}: {self.model} answers 1 or 0, it has no labels: leave it out"
            )
        return generates

    @cached_property
    def _classifier(self) -> CrossEncoder:
        return CrossEncoder(**self._shared)

    @cached_property
    def _generator(self) -> Seq2Seq:
        return Seq2Seq(words=ANSWERS, **self._shared)

    @property
    def _shared(self) -> dict[str, Any]:
        names = ("model", "max_length", "dtype", "device", "batch_size", "batch_tokens")
        return {"revision": self._source.revision, **{name: getattr(self, name) for name in names}}


def prompt(premise: str, hypothesis: str) -> tuple[str, str, str]:
    """What TRUE's models read, in parts, of which the middle one may be cut."""
    return "premise:", f" {harmless(premise).strip()}", f" hypothesis: {harmless(hypothesis).strip()}"


def harmless(text: str) -> str:
    """The text with a dash for the colon in what looks like one of the markers; any other text as it is.

    Compatibility forms and invisible characters are looked through, because T5's tokenizer does it as well.
    """
    plain = unicodedata.normalize("NFKC", text)
    plain = "".join(each for each in plain if each.isspace() or unicodedata.category(each) not in ("Cc", "Cf"))
    return _MARKER.sub(r"\1 -", plain) if _MARKER.search(plain) else text


def find_entailment(labels: Sequence[str], wanted: str | int | None, model: str) -> int:
    """Which of the labels means entailment.

    Raises:
        ValueError: It cannot be told, or there is no such label.
    """
    named = [str(label).strip().lower() for label in labels]
    if wanted is None:
        found = [index for index, label in enumerate(named) if label.startswith("entail")]
    elif isinstance(wanted, int):
        found = [wanted] if 0 <= wanted < len(labels) else []
    else:
        found = [index for index, label in enumerate(named) if label == wanted.strip().lower()]
    if len(found) == 1:
        return found[0]
    asked = "which one means entailment cannot be told" if wanted is None else f"entailment={wanted} is none of them"
    raise ValueError(f"{model} has the labels {', '.join(map(str, labels))}: {asked}: give entailment=<index or name>")
