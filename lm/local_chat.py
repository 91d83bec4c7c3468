"""Chats with a model of transformers on this machine: what ``lm.chat.ChatClient`` is for servers.

    chat = LocalChat("Qwen/Qwen2.5-7B-Instruct")
    for i, answer in chat.complete([ChatRequest((Message("user", "Hello"),)), ...]):
        ...                                                     # as batches finish

Answers are greedy, and are kept as those of servers are; they cost nothing. A schema is checked, but a broken answer
is not asked for again: it would be the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from corpora.fingerprint import digest
from lm.causal import CausalModel
from lm.chat_types import ChatAnswer, ChatRequest, estimate, grouped
from lm.ledger import Estimate, Ledger, Prices
from lm.rendering import TEMPLATE, check_rendering, find_template, read_ids, render_chat
from lm.replies import answer_of
from lm.responses import Record, ResponseStore
from lm.structured import check_schema
from lm.transformer import Dtype

FREE = Prices(0.0, 0.0)
_CHUNK = 2048


class LocalChat:
    """A causal language model that answers chats.

    Args:
        model: Model id of the hub, or a local folder.
        revision: Branch, tag or commit; None: ``main``, the commit being part of the fingerprint.
        adapter: Folder or model id of a LoRA adapter.
        adapter_revision: The same as ``revision``.
        rendering: A name of ``lm.rendering.RENDERINGS``, or ``template``: the model's own.
        dtype: ``fp32``, ``bf16`` or ``fp16``.
        device: See ``lm.causal.CausalModel``.
        batch_tokens: Likewise.
        store: Where answers are kept; default: ``responses`` in the cache.
        ledger: Where tokens are added up; default: one of its own.
    """

    version: ClassVar[int] = 1

    def __init__(
        self,
        model: str | Path,
        revision: str | None = None,
        adapter: str | Path | None = None,
        adapter_revision: str | None = None,
        rendering: str = TEMPLATE,
        dtype: Dtype = "bf16",
        device: str | None = None,
        batch_tokens: int | None = None,
        *,
        store: ResponseStore | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        check_rendering(rendering)
        self.rendering = rendering
        self.model = CausalModel(model, revision, adapter, adapter_revision, dtype, device, batch_tokens)
        self.store = ResponseStore() if store is None else store
        self.ledger = Ledger() if ledger is None else ledger

    @cached_property
    def fingerprint(self) -> str:
        """A hash of all that decides answers, but for the requests."""
        template = find_template(self.model.tokenizer, str(self.model.model)) if self.rendering == TEMPLATE else ""
        return digest(["LocalChat", self.version, self.model.fingerprint, self.rendering, template])

    def complete(self, requests: Sequence[ChatRequest]) -> Iterator[tuple[int, ChatAnswer]]:
        """Yields (position, answer), each position once, in any order, as batches finish; kept ones first.

        A request that is longer than the model takes is ``refused``.

        Raises:
            ValueError: A temperature above 0, or a schema that is none.
        """
        for request in requests:
            if request.temperature:
                raise ValueError(f"temperature={request.temperature}: a model on this machine answers greedily: give 0")
        for schema in {id(each.schema): each.schema for each in requests if each.schema}.values():
            check_schema(schema)
        with self.store.writer() as writer:
            for start in range(0, len(requests), _CHUNK):
                part = requests[start : start + _CHUNK]
                keys = [self.key(request) for request in part]
                kept, open_ = grouped(keys, self.store.get_many(keys))
                for i, record in kept:
                    self.ledger.count("cached")
                    yield start + i, answer_of(record, part[i], cached=True)
                for key, made in self._made({key: part[at[0]] for key, at in open_.items()}):
                    if isinstance(made, ChatAnswer):
                        yield from ((start + i, made) for i in open_[key])
                        continue
                    writer.add(key, made)
                    for n, i in enumerate(open_[key]):
                        yield start + i, answer_of(made, part[i], cached=n > 0)

    def kept(self, requests: Sequence[ChatRequest]) -> list[ChatAnswer | None]:
        """The answers that are there already, None where there is none; asks nothing."""
        records = self.store.get_many([self.key(request) for request in requests])
        return [
            None if r is None else answer_of(r, each, cached=True) for r, each in zip(records, requests, strict=True)
        ]

    def estimate(self, requests: Sequence[ChatRequest]) -> Estimate:
        """What these requests will take; asks nothing, and costs nothing."""
        keys = [self.key(each) for each in requests]
        return estimate(requests, keys, self.store.has(keys), FREE)

    def key(self, request: ChatRequest) -> bytes:
        """The 16 bytes under which the answer is kept; a schema changes nothing in it."""
        messages = [[each.role, each.content] for each in request.messages]
        return bytes.fromhex(digest(["local-chat-1", self.fingerprint, messages, request.max_tokens]))

    def _made(self, open_: dict[bytes, ChatRequest]) -> Iterator[tuple[bytes, Record | ChatAnswer]]:
        """(key, record) of each request; an answer that says why where there is none."""
        by_length: dict[int, list[bytes]] = {}
        for key, request in open_.items():
            by_length.setdefault(request.max_tokens, []).append(key)
        for max_tokens, keys in by_length.items():
            ids = self._ids([open_[key] for key in keys])
            most = self.model.max_length - max_tokens
            for key, prompt in zip(keys, ids, strict=True):
                if len(prompt) > most:
                    self.ledger.count("refused")
                    text = f"{len(prompt)} tokens, and the model takes {most} before {max_tokens} of an answer"
                    yield key, ChatAnswer("refused", text, cost_usd=0.0)
            fitting = [i for i, prompt in enumerate(ids) if len(prompt) <= most]
            for place, text in self.model.generate([ids[i] for i in fitting], max_tokens):
                i = fitting[place]
                yield keys[i], self._record(text, len(ids[i]), max_tokens)

    def _ids(self, requests: Sequence[ChatRequest]) -> list[list[int]]:
        tokenizer = self.model.tokenizer
        return read_ids(
            tokenizer, [render_chat(each.messages, self.rendering, tokenizer) for each in requests], self.rendering
        )

    def _record(self, text: str, input_tokens: int, max_tokens: int) -> Record:
        n = len(self.model.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])
        self.ledger.answer(input_tokens, n, 0.0)
        finish = "length" if n >= max_tokens else "stop"
        return {
            "text": text,
            "input_tokens": input_tokens,
            "output_tokens": n,
            "cost_usd": 0.0,
            "details": {"model": str(self.model.model), "finish": finish, "logprobs": [], "temperature": 0.0},
        }
