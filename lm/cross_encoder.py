"""Cross-encoders: a pair of texts is read together and becomes logits, with any sequence-classification model.

The judges ``nli`` and ``small`` and rerankers share it. Results come batch by batch, as they finish:

    for positions, logits in CrossEncoder("owner/model", dtype="bf16").scores(pairs):
        ...
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoTokenizer

from corpora.fingerprint import digest
from lm.batching import Batcher, Finished, Forward, check_sizes, find_batch_tokens, find_devices
from lm.pair_head import find_classifier
from lm.pairs import PairTokenizer, Side
from lm.rows import check_numbers, stream_rows
from lm.source import Source
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

HEADS = ("classifier", "score", "classification_head", "logits_proj")
"""What transformers calls the last layers of its sequence-classification models."""


class CrossEncoder:
    """A sequence-classification model; or a base encoder with a LoRA adapter that carries the classification head.

    Args:
        model: Model id of the hub, or a local folder.
        revision: Branch, tag or commit; None: ``main``, the commit being part of the fingerprint.
        adapter: Folder or model id of a LoRA adapter, merged into ``model`` on loading. A ``config.json`` beside it
            names its labels (``id2label``).
        adapter_revision: The same as ``revision``.
        cut: Which text of a pair is cut, at its end, where both are too long; the other one never is.
        max_length: Tokens of a pair; None: what the model takes.
        token_types: Whether the model gets the tokenizer's segment ids.
        dtype: ``fp32``, ``bf16`` or ``fp16``; on a CPU, bf16 is autocast over fp32 weights (as fast as bf16 weights,
            half the rounding error), and fp16 is slow.
        device: None: all GPUs, else the CPU; ``cpu``, ``cuda`` (all), ``cuda:1``, ``cuda:0,cuda:2``.
        batch_size: At most this many pairs at a time.
        batch_tokens: At most this many tokens at a time, padding included; None: 2048 on a CPU, 65536 on a GPU.
            Halved for good where memory runs out.
        package: An installed package that holds the model, for use where the hub's cache lacks it.
    """

    version: ClassVar[int] = 1
    runtime_args: ClassVar[tuple[str, ...]] = ("device", "batch_size", "batch_tokens")

    def __init__(
        self,
        model: str | Path,
        revision: str | None = None,
        adapter: str | Path | None = None,
        adapter_revision: str | None = None,
        cut: Side = "first",
        max_length: int | None = None,
        token_types: bool = True,
        dtype: Dtype = "fp32",
        device: str | None = None,
        batch_size: int = 256,
        batch_tokens: int | None = None,
        package: str | None = None,
    ) -> None:
        for name, value, known in (("dtype", dtype, tuple(DTYPES)), ("cut", cut, get_args(Side))):
            if value not in known:
                raise ValueError(f"{name}={value}: expected one of {', '.join(known)}")
        check_sizes(max_length=max_length, batch_size=batch_size, batch_tokens=batch_tokens)
        self.model, self.revision = model, revision
        self.adapter, self.adapter_revision = adapter, adapter_revision
        self.cut, self.max_length, self.token_types, self.dtype = cut, max_length, token_types, dtype
        self.device, self.batch_size, self.batch_tokens = device, batch_size, batch_tokens
        self.package = package
        self._source = Source(model, revision, package)
        self._adapter = None if adapter is None else Source(adapter, adapter_revision)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the model and adapter (id and commit, or content) and of all arguments that change a logit."""
        names = ("version", "cut", "max_length", "token_types", "dtype")
        models = [self._source.identity, self._adapter.identity if self._adapter else None]
        return digest(["CrossEncoder", models, {name: getattr(self, name) for name in names}])

    def prefetch(self) -> None:
        """Downloads model and adapter, as far as they are not cached."""
        self._source.prefetch()
        if self._adapter:
            self._adapter.prefetch()

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the logits, in their order; no weights are read."""
        return tuple(str(self.config.id2label[i]) for i in range(self.config.num_labels))

    @cached_property
    def config(self) -> Any:
        """The model's configuration, with the adapter's labels."""
        config = read_config(self._source.folder)
        if self._adapter:
            config.num_labels, names = _adapter_labels(self._adapter.folder)
            if head := _adapter_config(self._adapter.folder).get("pair_head"):
                config.pair_head = head
            if names:
                config.id2label = names
        return config

    def scores(self, pairs: Sequence[tuple[str, str]]) -> Iterator[Finished]:
        """Positions in ``pairs`` and their logits, float32 (n, labels), batch by batch as they finish.

        A pair's logits depend neither on the other pairs nor on their order, up to rounding. They are NaN where the
        text that is never cut leaves no room for the other one.

        Raises:
            ValueError: The model gives NaN or infinity; names the pair.
        """
        if not pairs:
            return
        tokenizer, replicas = self._loaded

        def forwards(rows: list[Row]) -> list[Forward]:
            return [self._forward(replica, tokenizer, rows) for replica in replicas]

        def check(logits: NDArray[np.float32], chosen: Sequence[tuple[str, str]]) -> None:
            check_numbers(logits, chosen, self.model, self.dtype)

        width = self.config.num_labels
        yield from stream_rows(pairs, tokenizer.rows, forwards, self._batcher, width, check)

    def logits(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """float32 (n, labels): all of ``scores``, in the order of the pairs."""
        found = np.full((len(pairs), self.config.num_labels), np.nan, np.float32)
        for positions, logits in self.scores(pairs):
            found[positions] = logits
        return found

    def _forward(self, model: Any, tokenizer: PairTokenizer, rows: Sequence[Row]) -> Forward:
        left = model.config.model_type == "xlnet"  # the only one that reads the last place, not the last token
        first = next(model.parameters())
        mixed = self.dtype == "bf16" and first.dtype == torch.float32

        def forward(part: list[int]) -> NDArray[np.float32]:
            inputs = pad([rows[position] for position in part], tokenizer.tokenizer.pad_token_id, left)
            with torch.inference_mode(), torch.autocast(first.device.type, torch.bfloat16, enabled=mixed):
                logits = model(**{name: values.to(first.device) for name, values in inputs.items()}).logits
            found: NDArray[np.float32] = logits.float().cpu().numpy()
            return found

        return forward

    @cached_property
    def _batcher(self) -> Batcher:
        return Batcher(self.batch_size, find_batch_tokens(self.batch_tokens, self.device))

    @cached_property
    def _loaded(self) -> tuple[PairTokenizer, list[Any]]:
        folder, config = self._source.folder, self.config
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        check_max_length(self.max_length, config)
        limit = self.max_length or find_max_length(tokenizer, config)
        pairs = PairTokenizer(tokenizer, self.cut, limit, self.token_types)
        config.pad_token_id = tokenizer.pad_token_id if config.pad_token_id is None else config.pad_token_id
        if config.pad_token_id is None:
            raise ValueError(f"the tokenizer in {folder} has no padding token: give it one (pad_token) and save it")
        devices = find_devices(self.device)  # before the weights are read
        mixed = self.dtype == "bf16" and all(device.type == "cpu" for device in devices)
        dtype = torch.float32 if mixed else DTYPES[self.dtype]
        model = _load(folder, config, self._adapter.folder if self._adapter else None, dtype)
        known = "token_type_ids" in inspect.signature(model.forward).parameters
        # Some tokenizers make them for models that have none.
        pairs.token_types &= known and getattr(config, "type_vocab_size", 2) > 1
        if getattr(config, "pair_head", None) and not pairs.token_types:
            raise ValueError(
                f"pair_head={config.pair_head}: it needs segment ids, and the tokenizer in {folder} gives none"
            )
        replicas = spread(model, devices)
        for replica in replicas:
            for name in HEADS:
                if (head := getattr(replica, name, None)) is not None:
                    compute_in_fp32(head)
        return pairs, replicas


def _load(folder: Path, config: Any, adapter: Path | None, dtype: torch.dtype) -> Any:
    """The model; an adapter is merged in fp32."""
    loader: Callable[..., Any] = find_classifier(config).from_pretrained
    with quiet():
        try:
            model, report = loader(
                folder, config=config, dtype=torch.float32 if adapter else dtype, use_safetensors=True,
                trust_remote_code=False, output_loading_info=True,
            )  # fmt: skip
        except ValueError as error:
            problem = str(error).partition("\n")[0]
            raise ValueError(f"the model in {folder} cannot classify texts: {problem[:200]}") from error
    missing = set(report["missing_keys"])
    if adapter is None:
        check_complete(folder, missing)
        return model.eval()
    from lm.adapter import adapter_shapes, merge_adapter  # PEFT is needed for adapters only

    check_complete(folder, missing - set(adapter_shapes(adapter)))
    return merge_adapter(model, adapter).to(dtype)


def _adapter_labels(folder: Path) -> tuple[int, dict[int, str] | None]:
    """How many labels the head of an adapter has; and their names, where it comes with a ``config.json``."""
    from lm.adapter import adapter_shapes

    shapes = adapter_shapes(folder)
    heads = [name for name in shapes if name.split(".")[0] in ("classifier", "score") and name.endswith(".weight")]
    if not heads:
        raise ValueError(f"the adapter in {folder} has no classification head: expected a module classifier or score")
    count = shapes[max(heads, key=lambda name: name.endswith(("classifier.weight", "out_proj.weight")))][0]
    names = _adapter_config(folder).get("id2label") or {}
    numbers = [str(number) for number in range(count)]
    if names and (not isinstance(names, dict) or sorted(names) != sorted(numbers)):
        raise ValueError(f"{folder / 'config.json'}: id2label={names} does not name the {count} labels of the head")
    return count, {int(number): str(names[number]) for number in numbers} if names else None


def _adapter_config(folder: Path) -> dict[str, Any]:
    """What is known of the whole model beside its adapter; empty where nothing is."""
    from lm.adapter import read_json

    path = folder / "config.json"
    return read_json(path) if path.is_file() else {}
