"""Requests to an OpenAI-compatible server, through the ``openai`` package: limits, retries, and errors in one line.

What a retry may cure (time-outs, stalls, 408, 409, 425, 429, 5xx, bodies that break off or are no JSON) is sent again
after a wait that doubles each time, shortened at random, or as long as the server asks for. What no retry cures ends
at once. Nothing that leaves this file, be it an answer or an error, has the key in it, even where the server sends it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import re
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NoReturn, TypeVar

import openai

from lm.http_errors import AgainError, described, problem
from lm.ledger import Ledger
from lm.rate_limits import RateLimits
from lm.server import Server, hide
from lm.text import clean

T = TypeVar("T")
Body = dict[str, Any]
"""A JSON object."""

LARGEST_BODY = 64 << 20
"""Bytes of an answer; a longer one is nonsense."""
LONGEST_WAIT_S = 60.0
"""Between two tries, unless the server asks for more."""
LEAST_FAILURES = 16
"""So many requests in a row without one answer say that the server is at fault, not the requests."""


class EndpointError(ValueError):
    """The server cannot be used; no retry would help."""


class RefusedError(Exception):
    """The server refuses this request for what stands in it: too long, or against its content policy."""


class FailedError(Exception):
    """This request has no answer after all retries; others may have."""


@dataclass(frozen=True, slots=True)
class Session:
    """An open client, for one event loop."""

    client: openai.AsyncOpenAI
    key: str | None

    def __repr__(self) -> str:
        return "Session()"


class Endpoint:
    """A server, what it allows, and what was asked of it. For several calls, also from several threads.

    Args:
        server: Address, key's variable, and limits.
        ledger: Where requests and retries are counted.
    """

    def __init__(self, server: Server, ledger: Ledger) -> None:
        self.server, self.ledger = server, ledger
        self.limits = RateLimits(server.requests_per_minute, server.tokens_per_minute)
        self._lock = threading.Lock()
        self._answered = False
        self._in_vain = 0

    @contextlib.asynccontextmanager
    async def session(self) -> AsyncIterator[Session]:
        """Connections of one event loop."""
        key = self.server.key()
        # Reading all certificates takes as long as many requests; a plain connection needs none, and trusts none.
        plain = self.server.base_url.startswith("http:")
        bare = openai.DefaultAsyncHttpxClient(verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)) if plain else None
        async with openai.AsyncOpenAI(
            api_key=key or "none",
            admin_api_key="",
            base_url=self.server.place,
            timeout=self.server.timeout_s,
            max_retries=0,
            http_client=bare,
        ) as client:
            yield Session(client, key)

    async def ask(
        self,
        session: Session,
        path: Literal["chat", "completions"],
        body: Mapping[str, Any],
        read: Callable[[Body], T],
        tokens: int,
    ) -> T:
        """What ``read`` makes of the server's answer.

        Args:
            session: Of this event loop.
            path: ``/chat/completions`` or ``/completions``.
            body: What is sent.
            read: Raises ValueError for nonsense, which is asked for again.
            tokens: About how many it takes, for the limit per minute.

        Raises:
            EndpointError: Nothing that is sent to this server, as it is, will be answered.
            RefusedError: The request's own text is refused.
            FailedError: No answer after all retries.
        """
        for attempt in range(self.server.retries + 1):
            await asyncio.sleep(self.limits.book(tokens))
            try:
                answer = await self._attempt(session, path, body)
                result = _read(read, answer)
            except AgainError as error:
                if attempt == self.server.retries:
                    self._fail(f"{error} ({attempt + 1} tries)")
                await self._wait(attempt, error)
            else:
                self.limits.settle(tokens, sum(count or 0 for count in usage(answer)) or tokens)
                with self._lock:
                    self._answered, self._in_vain = True, 0
                return result
        raise FailedError("no try was made")

    async def _attempt(self, session: Session, path: str, body: Mapping[str, Any]) -> Body:
        self.ledger.count("sent")
        try:
            async with asyncio.timeout(self.server.timeout_s):
                data = await _sent(session.client, path, body)
        except TimeoutError:
            raise AgainError(f"no answer within {self.server.timeout_s:g} s") from None
        except openai.APIStatusError as error:
            self._refuse(error, session.key)
        except openai.APIConnectionError as error:
            raise AgainError(described(error, session.key)) from None
        try:
            answer = _cleaned(json.loads(data), session.key)
        except (ValueError, RecursionError):
            shown = hide(data[:2000].decode("utf-8", "replace"), session.key)[:80]
            raise AgainError(f"the answer is no JSON: {shown!r}") from None
        if not isinstance(answer, dict):
            raise AgainError(f"the answer is no JSON object: {str(answer)[:80]!r}")
        if answer.get("error"):
            raise AgainError(f"the answer is an error: {str(answer['error'])[:200]}")
        return answer

    def _refuse(self, error: openai.APIStatusError, key: str | None) -> NoReturn:
        """Raises what an HTTP status means."""
        found = problem(error, key)
        if found.kind == "again":
            raise AgainError(found.text, found.wait_s) from None
        if found.kind == "refused":
            self._in_a_row(found.text)
            raise RefusedError(found.text) from None
        if found.kind == "request" and self._answered:
            self._fail(found.text)
        raise EndpointError(f"{self.server.place}: {found.text}{found.hint}") from None

    def _fail(self, text: str) -> NoReturn:
        self.ledger.count("failed")
        self._in_a_row(text)
        raise FailedError(text) from None

    def _in_a_row(self, text: str) -> None:
        with self._lock:
            self._in_vain += 1
            n = self._in_vain
        if n >= max(LEAST_FAILURES, self.server.concurrency):
            raise EndpointError(
                f"{self.server.place}: {n} requests in a row without an answer, the last: {text}; "
                "what was answered is kept: the same command goes on"
            ) from None

    async def _wait(self, attempt: int, error: AgainError) -> None:
        self.ledger.count("retried")
        if error.wait_s is not None:
            self.limits.pause(error.wait_s)  # the next booking waits as long, and so do all others from now on
        longest = min(self.server.backoff_s * 2**attempt, LONGEST_WAIT_S)
        await asyncio.sleep(longest * random.uniform(0.5, 1.0))  # noqa: S311


def usage(answer: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Input and output tokens as the server counts; None where it does not say."""
    counts = answer.get("usage")
    found = [counts.get(name) if isinstance(counts, dict) else None for name in ("prompt_tokens", "completion_tokens")]
    first, second = (
        count if isinstance(count, int) and not isinstance(count, bool) and 0 <= count < 1 << 40 else None
        for count in found
    )
    return first, second


async def _sent(client: openai.AsyncOpenAI, path: str, body: Mapping[str, Any]) -> bytes:
    """The bytes of the answer."""
    rest = {name: value for name, value in body.items() if name not in ("model", "messages", "prompt")}
    if path == "chat":
        opened = client.chat.completions.with_streaming_response.create(
            model=body["model"], messages=body["messages"], extra_body=rest
        )
    else:
        opened = client.completions.with_streaming_response.create(  # type: ignore[assignment]
            model=body["model"], prompt=body["prompt"], extra_body=rest
        )
    async with opened as response:
        data = bytearray()
        try:
            async for chunk in response.iter_bytes():
                data += chunk
                if len(data) > LARGEST_BODY:
                    raise AgainError(f"the answer is longer than {LARGEST_BODY >> 20} MB")
        except AgainError:
            raise
        except Exception as error:  # of the HTTP library, which is the openai package's own affair
            raise AgainError(f"the answer broke off ({type(error).__name__})") from None
        return bytes(data)


def _read(read: Callable[[Body], T], answer: Body) -> T:
    try:
        return read(answer)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
        text = re.sub(r"\s+", " ", str(error))[:120]
        raise AgainError(f"the answer is not what the interface promises: {type(error).__name__}: {text}") from None


def _cleaned(value: Any, key: str | None) -> Any:
    """The JSON value without the key, and without halves of surrogate pairs, which no file can hold."""
    if isinstance(value, str):
        return hide(clean(value), key)
    if isinstance(value, list):
        return [_cleaned(each, key) for each in value]
    if isinstance(value, dict):
        return {hide(clean(name), key): _cleaned(each, key) for name, each in value.items()}
    return value
