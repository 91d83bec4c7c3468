"""Chats with language models: one client for any OpenAI-compatible server, with what a long run needs.

    client = ChatClient("gpt-4o-mini", prices=Prices(0.15, 0.60))
    for i, answer in client.complete([ChatRequest((Message("user", "Hello"),)), ...]):
        ...                                         # in any order, while other answers are still open

Answers are kept (lm/responses.py) under all that decides them: model, messages and parameters. So a run that was
killed, or that is done again, pays for nothing twice, but for one block; and equal requests are asked once. A request
with a temperature above 0 has one kept answer as well: other samples have other seeds.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from corpora.fingerprint import digest
from lm.chat_types import Chat, ChatAnswer, ChatRequest, estimate, grouped
from lm.endpoint import Endpoint, Session, usage
from lm.fan_out import fan_out
from lm.ledger import Estimate, Ledger, Prices, estimated_tokens
from lm.replies import answer_of, read_reply
from lm.responses import Record, ResponseStore
from lm.server import LOCAL, Server
from lm.structured import check_schema, parse_structured

__all__ = ["Chat", "ChatAnswer", "ChatClient", "ChatRequest", "Prices", "Server", "make_chat"]

REPAIR_TEMPERATURE = 0.5
"""Of tries after the first, where that one was greedy: it would give the same broken JSON again."""
_CHUNK = 8192


class ChatClient:
    """A model behind an OpenAI-compatible server.

    What a key of a kept answer does not hold is the address: one model moves between machines. Where a name says too
    little (``default``, or a quantised copy under the original's name), ``identity`` tells answers apart.

    Args:
        model: As the server names it.
        server: Address, key's variable, limits.
        prices: Of the model.
        identity: What is really served, where the model's name does not say.
        structured: How a schema is sent: ``json_schema``, ``json_object`` (some JSON), or ``none`` (the prompt must
            say it). Answers are checked in any case.
        repairs: How often an answer that does not follow its schema is asked for again.
        max_tokens_name: Newer models of OpenAI want ``max_completion_tokens``.
        extra: More parameters of the request, such as ``{"reasoning_effort": "low"}``.
        store: Where answers are kept; default: ``responses`` in the cache.
        ledger: Where tokens and cost are added up; default: one of its own.
    """

    def __init__(
        self,
        model: str,
        server: Server | None = None,
        prices: Prices | None = None,
        *,
        identity: str = "",
        structured: Literal["json_schema", "json_object", "none"] = "json_schema",
        repairs: int = 2,
        max_tokens_name: Literal["max_tokens", "max_completion_tokens"] = "max_tokens",
        extra: Mapping[str, Any] | None = None,
        store: ResponseStore | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        if not model:
            raise ValueError("model: expected the name of a model as the server knows it")
        self.model = model
        self.server = Server() if server is None else server
        self.prices = Prices() if prices is None else prices
        self.identity, self.structured, self.repairs = identity, structured, repairs
        self.max_tokens_name, self.extra = max_tokens_name, dict(extra or {})
        self.store = ResponseStore() if store is None else store
        self.ledger = Ledger() if ledger is None else ledger
        self.endpoint = Endpoint(self.server, self.ledger)

    @property
    def fingerprint(self) -> str:
        """A hash of all that decides answers, but for the requests."""
        return digest(["chat", self.model, self.identity, self.structured, self.max_tokens_name, self.extra])

    def complete(self, requests: Sequence[ChatRequest]) -> Iterator[tuple[int, ChatAnswer]]:
        """Yields (position, answer), each position once, in any order, as answers come; kept ones first.

        Closing the iterator early cancels what is open; what was answered is kept.

        Raises:
            ValueError: The server cannot be used; or, after all other answers, some requests have none.
        """
        keys = [self.key(request) for request in requests]
        missing: dict[bytes, list[int]] = {}
        for start in range(0, len(requests), _CHUNK):
            part = slice(start, start + _CHUNK)
            kept, open_ = grouped(keys[part], self.store.get_many(keys[part]))
            for i, record in kept:
                self.ledger.count("cached")
                yield start + i, answer_of(record, requests[start + i], cached=True)
            for key, positions in open_.items():
                missing.setdefault(key, []).extend(start + i for i in positions)
        yield from self._asked(requests, missing)

    def _asked(
        self, requests: Sequence[ChatRequest], missing: Mapping[bytes, Sequence[int]]
    ) -> Iterator[tuple[int, ChatAnswer]]:
        """The answers that have to be asked for; ``missing``: key -> positions."""
        jobs = [(key, requests[positions[0]]) for key, positions in missing.items()]
        for schema in {id(request.schema): request.schema for _, request in jobs if request.schema}.values():
            check_schema(schema)
        writer = self.store.writer()

        async def ask(session: Session, job: tuple[bytes, ChatRequest]) -> ChatAnswer:
            record = await self._ask(session, job[1])
            writer.add(job[0], record)
            return answer_of(record, job[1])

        def refused(text: str) -> ChatAnswer:
            return ChatAnswer("refused", text, cost_usd=0.0)

        with contextlib.closing(fan_out(self.endpoint, jobs, ask, refused, meanwhile=writer)) as answers:
            for job, answer in answers:
                first, *others = missing[jobs[job][0]]
                yield first, answer
                for i in others:
                    self.ledger.count("cached")
                    yield i, replace(answer, cost_usd=0.0, cached=True)

    def kept(self, requests: Sequence[ChatRequest]) -> list[ChatAnswer | None]:
        """The answers that are there already, None where there is none; asks nothing."""
        records = self.store.get_many([self.key(request) for request in requests])
        return [
            None if r is None else answer_of(r, each, cached=True) for r, each in zip(records, requests, strict=True)
        ]

    def estimate(self, requests: Sequence[ChatRequest]) -> Estimate:
        """What these requests will take; asks nothing. Tokens are estimated from the texts' bytes, see Estimate."""
        keys = [self.key(request) for request in requests]
        return estimate(requests, keys, self.store.has(keys), self.prices)

    def key(self, request: ChatRequest) -> bytes:
        """The 16 bytes under which the answer is kept."""
        checked = None if request.schema is None else [request.schema, self.repairs]
        return bytes.fromhex(digest(["chat-1", self.identity, self.body(request), checked]))

    def body(self, request: ChatRequest, attempt: int = 0) -> dict[str, Any]:
        """What is sent; a repair has another seed, and a temperature above 0."""
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [{"role": each.role, "content": each.content} for each in request.messages],
            self.max_tokens_name: request.max_tokens,
        }
        if request.temperature is not None:
            body["temperature"] = request.temperature or (REPAIR_TEMPERATURE if attempt else 0.0)
        if request.seed is not None:
            body["seed"] = request.seed + attempt
        if request.top_logprobs:
            body |= {"logprobs": True, "top_logprobs": request.top_logprobs}
        if request.schema is not None and self.structured == "json_object":
            body["response_format"] = {"type": "json_object"}
        elif request.schema is not None and self.structured == "json_schema":
            # What "strict" asks of a schema, only those have that say that nothing else may stand in the object.
            strict = request.schema.get("additionalProperties") is False
            wanted = {"name": "answer", "schema": request.schema, "strict": strict}
            body["response_format"] = {"type": "json_schema", "json_schema": wanted}
        return body | self.extra

    async def _ask(self, session: Session, request: ChatRequest) -> Record:
        """The record of one answer, of the last try where it had to be repaired."""
        tokens = estimated_tokens(each.content for each in request.messages) + request.max_tokens
        counts: list[tuple[int | None, int | None]] = []
        record: Record = {}
        for attempt in range(1 + (self.repairs if request.schema is not None else 0)):
            body = self.body(request, attempt)
            record = await self.endpoint.ask(session, "chat", body, lambda reply: _read(reply, counts), tokens)
            record["details"] |= {
                "seed": body.get("seed"),
                "temperature": body.get("temperature"),
                "tries": len(counts),
            }
            self.ledger.answer(*counts[-1], self.prices.cost_usd(*counts[-1]))
            if request.schema is None or parse_structured(record["text"], request.schema)[0]:
                break
            self.ledger.count("repaired" if attempt < self.repairs else "unparsed")
        record["input_tokens"], record["output_tokens"] = (_sum(column) for column in zip(*counts, strict=True))
        record["cost_usd"] = self.prices.cost_usd(record["input_tokens"], record["output_tokens"])
        return record


def make_chat(model: str, server: Server | None = None, prices: Prices | None = None, **more: Any) -> Chat:
    """A client of the server; or, where its address is ``local``, the model itself on this machine.

    Args:
        model: As the server names it; or a model id of the hub, or a folder.
        server: See ``Server``.
        prices: Of the model; one on this machine is free.
        more: See ``ChatClient``; what is about servers only does not matter to a model on this machine.
    """
    if server is None or server.base_url != LOCAL:
        return ChatClient(model, server, prices, **more)
    from lm.local_chat import LocalChat  # torch is needed here only

    return LocalChat(model, store=more.get("store"), ledger=more.get("ledger"))


def _read(reply: dict[str, Any], counts: list[tuple[int | None, int | None]]) -> Record:
    record = read_reply(reply)
    counts.append(usage(reply))
    return record


def _sum(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None
