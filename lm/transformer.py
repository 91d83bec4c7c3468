"""A transformers model on one or more devices: token ids in, pooled vectors out."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from transformers import AutoConfig, AutoModel, AutoTokenizer
from transformers.utils import logging

from lm.batching import Batcher, find_devices
from lm.pooling import Pooling, pool
from lm.text import shorten

Dtype: TypeAlias = Literal["fp32", "bf16", "fp16"]
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}

Row: TypeAlias = Mapping[str, list[int]]
"""One text's ``input_ids`` and perhaps ``token_type_ids``."""


class Transformer:
    """A tokenizer and a model, one replica per device.

    Args:
        folder: Configuration, tokenizer and safetensors.
        pooling: See ``lm.pooling.pool``.
        normalize: Whether vectors get length 1.
        max_length: The most tokens that will be asked for, special ones included, to be checked here; None: no more
            than tokenizer and model take.
        token_types: Whether the model gets segment ids, where its tokenizer makes them.
        dtype: Of weights and activations; pooling is float32.
        device: See ``lm.batching.find_devices``.
    """

    def __init__(
        self,
        folder: Path,
        pooling: Pooling,
        normalize: bool,
        max_length: int | None,
        token_types: bool,
        dtype: Dtype,
        device: str | None,
    ) -> None:
        self.pooling = pooling
        self.normalize = normalize
        self.token_types = token_types
        config = read_config(folder)
        self.tokenizer: Any = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        self.max_length = find_max_length(self.tokenizer, config)
        check_max_length(max_length, config)
        devices = find_devices(device)  # before the weights are read
        model = _load(folder, config, pooling, DTYPES[dtype])
        self.replicas = spread(model, devices)
        self.devices = devices

    def encode(
        self, texts: Sequence[tuple[str, ...]], batcher: Batcher, max_length: int | None = None
    ) -> NDArray[np.float32]:
        """float32 (n, d).

        Args:
            texts: One string each, or two: a pair.
            batcher: Makes the batches.
            max_length: Tokens per text, special ones included; None: what tokenizer and model take.
        """
        rows = self.tokenize(texts, max_length or self.max_length)
        forwards = [
            lambda part, at=at, model=model: self._forward(model, at, [rows[position] for position in part])
            for at, model in zip(self.devices, self.replicas, strict=True)
        ]
        return np.stack(batcher.run([len(row["input_ids"]) for row in rows], forwards))

    def tokenize(self, texts: Sequence[tuple[str, ...]], max_length: int) -> list[Row]:
        """The token ids of each text or pair, cut at the end."""
        rows: list[Row] = [{}] * len(texts)
        for size in (1, 2):
            chosen = [position for position, text in enumerate(texts) if len(text) == size]
            if not chosen:
                continue
            # Of a pair's parts, the longer loses tokens first: which one it is must still be seen after the cut.
            columns = [[self._shorten(texts[i][part], size * max_length) for i in chosen] for part in range(size)]
            encoded = self.tokenizer(*columns, truncation=True, max_length=max_length, verbose=False)
            names = ["input_ids", *(["token_type_ids"] if self.token_types and "token_type_ids" in encoded else [])]
            for row, position in enumerate(chosen):
                rows[position] = {name: encoded[name][row] for name in names}
        return rows

    def _shorten(self, text: str, max_length: int) -> str:
        if self.tokenizer.truncation_side != "right":
            return text
        return shorten(text, max_length, self._count)

    def _count(self, text: str) -> int:
        return len(self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])

    def _forward(self, model: Any, device: torch.device, rows: list[Row]) -> NDArray[np.float32]:
        inputs = pad(rows, self.tokenizer.pad_token_id)
        with torch.inference_mode():
            inputs = {name: values.to(device) for name, values in inputs.items()}
            vectors = pool(model(**inputs), inputs["attention_mask"], self.pooling)
            if self.normalize:
                vectors = torch.nn.functional.normalize(vectors, dim=1)
        found: NDArray[np.float32] = vectors.cpu().numpy()
        return found


def pad(rows: Sequence[Row], pad_id: int | None, left: bool = False) -> dict[str, torch.Tensor]:
    """int64 (n, length) each, and the attention mask; a text without any token is one padding token that counts.

    Args:
        rows: At least one.
        pad_id: The tokenizer's padding token; None: it has none, and 0 is taken, which the mask hides.
        left: Padding before the tokens instead of behind them.
    """
    padding = {"input_ids": pad_id or 0, "token_type_ids": 0}
    lengths = [max(1, len(row["input_ids"])) for row in rows]
    longest = max(lengths)
    inputs = {name: torch.full((len(rows), longest), padding[name]) for name in rows[0]}
    inputs["attention_mask"] = torch.zeros((len(rows), longest), dtype=torch.int64)
    for position, (row, length) in enumerate(zip(rows, lengths, strict=True)):
        start = longest - length if left else 0
        inputs["attention_mask"][position, start : start + length] = 1
        for name, ids in row.items():
            inputs[name][position, start : start + len(ids)] = torch.tensor(ids)
    return inputs


def spread(model: Any, devices: Sequence[torch.device]) -> list[Any]:
    """One replica of the model per device."""
    copies = [model, *(copy.deepcopy(model) for _ in devices[1:])]
    return [each.to(at) for each, at in zip(copies, devices, strict=True)]


def compute_in_fp32(head: Any) -> None:
    """Makes a model's last layers compute in fp32, whatever precedes them: bf16 logits around 4 are 1/32 apart.

    Args:
        head: A module of the model, changed in place; only after ``spread``, because copies would share it.
    """
    forward = head.forward
    for part in head.modules():
        for name, values in list(part.named_parameters(recurse=False)):
            if values.dtype != torch.float32:  # of its own, where it is tied to another layer
                setattr(part, name, torch.nn.Parameter(values.detach().float(), requires_grad=False))

    def exact(*inputs: torch.Tensor) -> Any:
        with torch.autocast(inputs[0].device.type, enabled=False):
            return forward(*(each.float() for each in inputs))

    head.forward = exact


def read_config(folder: Path) -> Any:
    """The model's configuration; no weights are read."""
    return AutoConfig.from_pretrained(folder, trust_remote_code=False)


def find_dimension(folder: Path) -> int:
    """The length of a model's vectors, from its configuration."""
    config = read_config(folder)
    size = getattr(config, "projection_dim", 0) if config.model_type == "dpr" else 0  # 0: no projection
    size = size or getattr(config, "hidden_size", None)
    if not isinstance(size, int):
        raise ValueError(f"the configuration in {folder} has no hidden_size: is it a text encoder?")
    return size


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """No progress bars and loading reports of transformers: what matters in them is checked here."""
    log: Any = logging
    verbosity, bars = log.get_verbosity(), log.is_progress_bar_enabled()
    log.set_verbosity_error()
    log.disable_progress_bar()
    try:
        yield
    finally:
        log.set_verbosity(verbosity)
        if bars:
            log.enable_progress_bar()


def _load(folder: Path, config: Any, pooling: Pooling, dtype: torch.dtype) -> Any:
    names = getattr(config, "architectures", None) or [""]
    # One configuration serves DPR's two encoders, and AutoModel takes the question encoder for both.
    context = config.model_type == "dpr" and names[0] == "DPRContextEncoder"
    loader: Any = transformers.DPRContextEncoder if context else AutoModel
    with quiet():
        model, report = loader.from_pretrained(
            folder, dtype=dtype, use_safetensors=True, trust_remote_code=False, output_loading_info=True
        )
    check_complete(folder, [name for name in report["missing_keys"] if pooling == "pooler" or "pooler" not in name])
    return model.eval()


def check_complete(folder: Path, missing: Iterable[str]) -> None:
    """Refuses a model some of whose tensors were not in its files.

    Raises:
        ValueError: Names one of them.
    """
    if names := sorted(missing):
        raise ValueError(
            f"the weights in {folder} lack {len(names)} of the model's tensors ({names[0]} ...): they would be random "
            "numbers; check the architecture in config.json, or choose a model (or pooling) that needs no others"
        )


def find_max_length(tokenizer: Any, config: Any) -> int:
    """How many tokens tokenizer and model take, special ones included; 512 where neither says."""
    known = (tokenizer.model_max_length, _positions(config))
    return min((length for length in known if 0 < length < 1_000_000), default=512)  # tokenizers say 1e30 for "unknown"


def check_max_length(wanted: int | None, config: Any) -> None:
    """Refuses more tokens than the model has positions for."""
    if wanted is not None and 0 < _positions(config) < wanted:
        raise ValueError(f"max_length={wanted}: this model takes at most {_positions(config)}")


def _positions(config: Any) -> int:
    """How many tokens have a position; 0: any number."""
    positions = getattr(config, "max_position_embeddings", None) or 0
    padded = config.model_type in ("roberta", "xlm-roberta", "camembert", "mpnet")  # they count from the padding's id
    return int(positions - (config.pad_token_id + 1 if padded else 0))
