"""What goes into a chat with a language model and what comes out, served anywhere; the protocol of who answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar, runtime_checkable

from lm.ledger import Estimate, Ledger, Prices, estimated_tokens
from lm.prompts import Message
from lm.text import clean

R = TypeVar("R")

Alternatives = tuple[tuple[str, float], ...]
"""Tokens at one place of an answer with their log-probabilities, the likeliest first."""


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """Messages, and how they are to be answered.

    Attributes:
        messages: In order. Lone surrogates, which cannot be sent, become question marks.
        max_tokens: Of the answer.
        temperature: 0: the likeliest answer; None: the server's own (some models take no other).
        seed: None: none is sent.
        top_logprobs: Log-probabilities of so many alternatives at each place of the answer; 0: none.
        schema: JSON schema that the answer has to follow; do not change it afterwards.
    """

    messages: tuple[Message, ...]
    max_tokens: int = 1024
    temperature: float | None = 0.0
    seed: int | None = 0
    top_logprobs: int = 0
    schema: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if not self.messages or self.max_tokens < 1 or self.top_logprobs < 0:
            raise ValueError(
                f"{len(self.messages)} messages, max_tokens={self.max_tokens}, top_logprobs={self.top_logprobs}: "
                "expected at least one message and one token, and top_logprobs from 0"
            )
        cleaned = tuple(Message(each.role, clean(each.content)) for each in self.messages)
        object.__setattr__(self, "messages", cleaned)


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """What came back.

    Attributes:
        status: ``ok``; ``unparsed``: it does not follow the schema, after all repairs; ``refused``: the server refuses
            the request for what stands in it (too long, content policy), and ``text`` is what it says.
        text: As the model wrote it.
        parsed: The JSON value that follows the schema, where there is one.
        logprobs: Alternatives at each place of the answer; empty where the server gives none.
        finish: Why the answer ends, as the server says: ``stop``, ``length`` ...
        model: As the server names it.
        seed: Of the try that gave this answer.
        temperature: Of the same try.
        input_tokens: Of all tries, as the server counts; None where it does not say.
        output_tokens: Of all tries.
        cost_usd: What the answer cost in this call: 0 where it was kept from another one; None where unknown.
        cached: Whether it was kept from another call, or shared with an equal request.
    """

    status: Literal["ok", "unparsed", "refused"]
    text: str
    parsed: Any = None
    logprobs: tuple[Alternatives, ...] = ()
    finish: str = ""
    model: str = ""
    seed: int | None = None
    temperature: float | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None
    cached: bool = False


def grouped(keys: Sequence[bytes], records: Sequence[R | None]) -> tuple[list[tuple[int, R]], dict[bytes, list[int]]]:
    """What is there, by position; and what has to be asked for: key -> positions, the first of which asks.

    Args:
        keys: Of the requests.
        records: What is kept under them, None where nothing is.
    """
    kept, open_ = [], dict[bytes, list[int]]()
    for i, (key, record) in enumerate(zip(keys, records, strict=True)):
        if record is None:
            open_.setdefault(key, []).append(i)
        else:
            kept.append((i, record))
    return kept, open_


def estimate(requests: Sequence[ChatRequest], keys: Sequence[bytes], there: Sequence[bool], prices: Prices) -> Estimate:
    """What requests will take that are kept under these keys; there: which of them are kept already."""
    first = {key: request for key, request, kept in zip(keys, requests, there, strict=True) if not kept}
    tokens_in = sum(estimated_tokens(each.content for each in request.messages) for request in first.values())
    tokens_out = sum(request.max_tokens for request in first.values())
    cached = sum(there)
    return Estimate(
        requests=len(requests),
        cached=cached,
        duplicates=len(requests) - cached - len(first),
        calls=len(first),
        input_tokens=tokens_in,
        output_tokens=tokens_out,
        cost_usd=prices.cost_usd(tokens_in, tokens_out),
    )


@runtime_checkable
class Chat(Protocol):
    """Answers requests: a server (lm/chat.py) or a model on this machine (lm/local_chat.py)."""

    ledger: Ledger

    @property
    def fingerprint(self) -> str:
        """A hash of all that decides answers, but for the requests."""
        ...

    def complete(self, requests: Sequence[ChatRequest]) -> Iterator[tuple[int, ChatAnswer]]:
        """Yields (position, answer), each position once, in any order, as they finish."""
        ...

    def kept(self, requests: Sequence[ChatRequest]) -> list[ChatAnswer | None]:
        """The answers that are there already, None where there is none; asks nothing."""
        ...

    def estimate(self, requests: Sequence[ChatRequest]) -> Estimate:
        """What these requests will take; asks nothing."""
        ...
