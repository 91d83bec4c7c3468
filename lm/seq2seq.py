"""Encoder-decoder models: how probable are the first words of an answer, by one step of the decoder.

The texts have three parts, of which only the middle one is cut where they are too long:

    for positions, found in Seq2Seq("owner/model", words=("1", "0")).scores(texts):
        ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from corpora.fingerprint import digest
from lm.batching import Batcher, Finished, Forward, check_sizes, find_batch_tokens, find_devices
from lm.pairs import LEAST, encode, surround
from lm.rows import check_numbers, stream_rows
from lm.source import Source
from lm.text import clean, shorten
from lm.transformer import (
    DTYPES,
    Dtype,
    Row,
    check_complete,
    check_max_length,
    compute_in_fp32,
    find_max_length,
    pad,
    quiet,
    read_config,
    spread,
)

Parts: TypeAlias = tuple[str, str, str]
"""What stands before, the text that may be cut at its end, what stands behind; joined as they are."""


class Seq2Seq:
    """An encoder-decoder model that is asked for one word.

    Args:
        model: Model id of the hub, or a local folder.
        revision: Branch, tag or commit; None: ``main``, the commit being part of the fingerprint.
        words: The answers whose probabilities are wanted; their first tokens have to differ.
        max_length: Tokens of a text; None: what the model takes.
        dtype: ``fp32``, ``bf16`` or ``fp16`` (many T5 models give NaN in it).
        device: None: all GPUs, else the CPU; ``cpu``, ``cuda`` (all), ``cuda:1``, ``cuda:0,cuda:2``.
        batch_size: At most this many texts at a time.
        batch_tokens: At most this many tokens at a time, padding included; None: 2048 on a CPU, 65536 on a GPU.
            Halved for good where memory runs out.
    """

    version: ClassVar[int] = 1
    runtime_args: ClassVar[tuple[str, ...]] = ("device", "batch_size", "batch_tokens")

    def __init__(
        self,
        model: str | Path,
        revision: str | None = None,
        words: Sequence[str] = ("1", "0"),
        max_length: int | None = None,
        dtype: Dtype = "fp32",
        device: str | None = None,
        batch_size: int = 256,
        batch_tokens: int | None = None,
    ) -> None:
        if dtype not in DTYPES:
            raise ValueError(f"dtype={dtype}: expected one of {', '.join(DTYPES)}")
        check_sizes(max_length=max_length, batch_size=batch_size, batch_tokens=batch_tokens)
        self.model, self.revision, self.words = model, revision, words
        self.max_length, self.dtype = max_length, dtype
        self.device, self.batch_size, self.batch_tokens = device, batch_size, batch_tokens
        self._source = Source(model, revision)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the model (id and commit, or content) and of all arguments that change a number."""
        settings = [self.version, list(self.words), self.max_length, self.dtype]
        return digest(["Seq2Seq", self._source.identity, settings])

    def prefetch(self) -> None:
        """Downloads the model, as far as it is not cached."""
        self._source.prefetch()

    @cached_property
    def config(self) -> Any:
        """The model's configuration; no weights are read."""
        return read_config(self._source.folder)

    @cached_property
    def word_ids(self) -> tuple[int, ...]:
        """The first token of each word, as the model begins to answer with it."""
        found = tuple(ids[0] for ids in encode(self._tokenizer, self.words) if ids)
        if len(set(found)) < len(self.words):
            raise ValueError(f"the tokenizer of {self.model} begins two of {', '.join(self.words)} with one token")
        return found

    def scores(self, texts: Sequence[Parts]) -> Iterator[Finished]:
        """Positions in ``texts`` and float32 (n, words + 1), batch by batch as they finish.

        The columns are the log-probabilities (natural, over the whole vocabulary) of the words' first tokens, and at
        the end the id of the most probable token. All are NaN where the last part leaves no room for the middle one.

        Raises:
            ValueError: The model gives NaN or infinity; shows the text.
        """
        if not texts:
            return
        words = self.word_ids
        replicas = self._replicas

        def forwards(rows: list[Row]) -> list[Forward]:
            return [self._forward(replica, rows, words) for replica in replicas]

        def check(found: NDArray[np.float32], chosen: Sequence[Parts]) -> None:
            check_numbers(found, [parts[1:] for parts in chosen], self.model, self.dtype)

        yield from stream_rows(texts, self._rows, forwards, self._batcher, len(words) + 1, check)

    def decode(self, token: int) -> str:
        """A token as text, for reading."""
        return str(self._tokenizer.decode([token]))

    def _rows(self, texts: Sequence[Parts]) -> list[Row | None]:
        limit = self._limit
        short: list[Parts] = [tuple(self._shorten(clean(part)) for part in parts) for parts in texts]  # type: ignore[misc]
        # The whole text is read as one wherever it fits, exactly as the model was trained.
        whole = encode(self._tokenizer, ["".join(parts) for parts in short])
        before, behind = self._around
        size = limit - len(before) - len(behind)
        return [
            self._cut(parts, size) if len(ids) > size else {"input_ids": [*before, *ids, *behind]}
            for parts, ids in zip(short, whole, strict=True)
        ]

    def _cut(self, parts: Parts, size: int) -> Row | None:
        first, middle, last = encode(self._tokenizer, parts)
        room = size - len(first) - len(last)
        if room < min(LEAST, len(middle)):
            return None
        before, behind = self._around
        return {"input_ids": [*before, *first, *middle[:room], *last, *behind]}

    def _shorten(self, text: str) -> str:
        return shorten(text, self._limit, lambda part: len(encode(self._tokenizer, [part])[0]))

    def _forward(self, model: Any, rows: Sequence[Row], words: Sequence[int]) -> Forward:
        first = next(model.parameters())
        mixed = self.dtype == "bf16" and first.dtype == torch.float32

        def forward(part: list[int]) -> NDArray[np.float32]:
            inputs = pad([rows[position] for position in part], self._tokenizer.pad_token_id)
            inputs["decoder_input_ids"] = torch.full((len(part), 1), self.config.decoder_start_token_id)
            with torch.inference_mode(), torch.autocast(first.device.type, torch.bfloat16, enabled=mixed):
                given = {name: values.to(first.device) for name, values in inputs.items()}
                logits = model(**given, use_cache=False).logits
            logs = torch.log_softmax(logits[:, 0].float(), dim=-1)
            best = logs.argmax(dim=-1, keepdim=True)  # ids are far below 2**24, up to which fp32 holds them
            found: NDArray[np.float32] = torch.cat([logs[:, list(words)], best.float()], dim=1).cpu().numpy()
            return found

        return forward

    @cached_property
    def _batcher(self) -> Batcher:
        return Batcher(self.batch_size, find_batch_tokens(self.batch_tokens, self.device))

    @cached_property
    def _tokenizer(self) -> Any:
        return AutoTokenizer.from_pretrained(self._source.folder, trust_remote_code=False)

    @cached_property
    def _around(self) -> tuple[list[int], list[int]]:
        return surround(self._tokenizer)

    @cached_property
    def _limit(self) -> int:
        check_max_length(self.max_length, self.config)
        return self.max_length or find_max_length(self._tokenizer, self.config)

    @cached_property
    def _replicas(self) -> list[Any]:
        folder, config = self._source.folder, self.config
        if not config.is_encoder_decoder or config.decoder_start_token_id is None:
            raise ValueError(f"{self.model} is no encoder-decoder model with a decoder_start_token_id: choose another")
        devices = find_devices(self.device)  # before the weights are read
        mixed = self.dtype == "bf16" and all(device.type == "cpu" for device in devices)
        loader: Callable[..., Any] = AutoModelForSeq2SeqLM.from_pretrained
        with quiet():
            model, report = loader(
                folder, config=config, dtype=torch.float32 if mixed else DTYPES[self.dtype], use_safetensors=True,
                trust_remote_code=False, output_loading_info=True,
            )  # fmt: skip
        check_complete(folder, report["missing_keys"])
        replicas = spread(model.eval(), devices)
        for replica in replicas:
            compute_in_fp32(replica.get_output_embeddings())
        return replicas
