"""A causal language model on a server with ``/v1/completions`` (vLLM, and others with its interface).

    vllm serve timchen0618/Mistral_BERDS_evaluator_full --max-logprobs 20
    model = CompletionsServer("timchen0618/Mistral_BERDS_evaluator_full", "http://localhost:8000/v1")

It stands in for ``lm.causal.CausalModel``: prompts go out as the very token ids, so that the server adds no second BOS
and applies no template; one token is generated, and its log-probabilities come back. A server tells the likeliest
tokens only (20, unless it was started with more), so a spelling of Yes or No that is less likely than all of them
counts as impossible. It is at most as likely as the last one told, and ``report`` says how much that can be.
"""

from __future__ import annotations

import contextlib
import math
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from transformers import AutoTokenizer

from corpora.fingerprint import digest
from lm.causal import Scored, Scorer, find_label_ids
from lm.endpoint import Body, Endpoint, EndpointError, Session, usage
from lm.fan_out import fan_out
from lm.ledger import Ledger
from lm.prefixes import Ids
from lm.server import Server
from lm.source import Source
from lm.top_tokens import Found, TopTokenReader, first_choice, read_top_tokens
from lm.transformer import find_max_length, read_config

T = TypeVar("T")

TOP = 20
"""Log-probabilities asked for: as many as vLLM gives unless it is told otherwise."""
CONCURRENCY = 64
"""Requests open at a time: a server with continuous batching wants many."""


@dataclass(slots=True)
class Report:
    """What was not told, over all prompts scored so far.

    Attributes:
        n: Prompts scored.
        n_by_text: Of these, those whose tokens came as texts and not as ids: spellings with and without a blank may
            have been one.
        n_partial: Prompts with a spelling of a label that is not among the tokens told.
        largest_missing: The most that these spellings can add to the probabilities of the labels together.
    """

    n: int = 0
    n_by_text: int = 0
    n_partial: int = 0
    largest_missing: float = 0.0


class CompletionsServer:
    """Scores and generates like ``lm.causal.CausalModel``; configuration and tokenizer are read here, weights are not.

    Args:
        model: Model id of the hub, or a local folder (its weights may be missing): whose tokenizer makes the prompts.
        server: Address, or more settings; no part of the fingerprint.
        revision: Branch, tag or commit; None: ``main``.
        adapter: Of the model on the server; only named in the fingerprint.
        adapter_revision: The same as ``revision``.
        served_as: The model's name on the server; None: ``model``.
        top: Log-probabilities asked for; None: 20.
    """

    version: ClassVar[int] = 1
    runtime_args: ClassVar[tuple[str, ...]] = ("server",)

    def __init__(
        self,
        model: str | Path,
        server: Server | str,
        revision: str | None = None,
        adapter: str | Path | None = None,
        adapter_revision: str | None = None,
        served_as: str | None = None,
        top: int | None = None,
    ) -> None:
        top = TOP if top is None else top
        if top < 1:
            raise ValueError(f"top={top}: expected at least one log-probability")
        self.model, self.revision = model, revision
        self.adapter, self.adapter_revision = adapter, adapter_revision
        self.server = Server(server, concurrency=CONCURRENCY) if isinstance(server, str) else server
        self.served_as, self.top = served_as, top
        self.source = Source(model, revision)
        self.adapter_source = None if adapter is None else Source(adapter, adapter_revision)
        self.report = Report()
        self.endpoint = Endpoint(self.server, Ledger())
        self._lock = threading.Lock()

    @property
    def took(self) -> dict[str, object]:
        """What scoring took in this process, and what the server did not tell, for provenance.json."""
        return {**self.endpoint.ledger.as_dict(), **asdict(self.report)}

    @cached_property
    def fingerprint(self) -> str:
        """A hash of model and adapter, the name on the server where one is given, and how many tokens are told."""
        adapter = self.adapter_source.identity if self.adapter_source else None
        return digest(["CompletionsServer", self.version, self.source.identity, adapter, self.served_as, self.top])

    def prefetch(self) -> None:
        """Downloads configuration and tokenizer, as far as they are not cached."""
        self.source.tokenizer_folder  # noqa: B018

    @cached_property
    def tokenizer(self) -> Any:
        """The model's tokenizer."""
        return AutoTokenizer.from_pretrained(self.source.tokenizer_folder, trust_remote_code=False)

    @cached_property
    def max_length(self) -> int:
        """How many tokens the model takes; the server may have been told to take fewer."""
        return find_max_length(self.tokenizer, read_config(self.source.tokenizer_folder))

    def label_ids(self, words: Sequence[str]) -> tuple[int, ...]:
        """See ``lm.causal.find_label_ids``."""
        return find_label_ids(self.tokenizer, words)

    def score(self, prompts: Sequence[Ids], labels: Sequence[Sequence[int]]) -> Iterator[tuple[int, Scored]]:
        """See ``lm.causal.CausalModel.score``; a prompt that the server refuses (too long) has no label.

        Raises:
            ValueError: The server cannot be used, gives no log-probabilities or changes prompts; or, after all other
                answers, some prompts have none.
        """
        reader = TopTokenReader(self.tokenizer, labels)
        more = {"max_tokens": 1, "logprobs": self.top, "return_tokens_as_token_ids": True}

        def read(reply: Body) -> Found | None:
            told = read_top_tokens(reply)
            return None if told is None else reader.read(told)

        async def ask(session: Session, ids: Ids) -> Scored:
            found = await self._asked(session, ids, more, read)
            if found is None:
                raise EndpointError(
                    f"{self.server.place}: it gives no log-probabilities, but {self.top} of the first token were asked "
                    "for: a server with the interface of vLLM is needed"
                )
            self._count(found)
            return found.scored

        def refused(text: str) -> Scored:
            return Scored((-math.inf,) * len(labels), None, f"refused: {text}")

        with contextlib.closing(fan_out(self.endpoint, list(prompts), ask, refused)) as answers:
            yield from answers

    def generate(self, prompts: Sequence[Ids], max_new_tokens: int) -> Iterator[tuple[int, str]]:
        """See ``lm.causal.CausalModel.generate``; a prompt that the server refuses has an empty answer."""

        async def ask(session: Session, ids: Ids) -> str:
            return await self._asked(session, ids, {"max_tokens": max_new_tokens}, _text)

        with contextlib.closing(fan_out(self.endpoint, list(prompts), ask, lambda text: "")) as answers:
            yield from answers

    async def _asked(self, session: Session, ids: Ids, more: Mapping[str, Any], read: Callable[[Body], T]) -> T:
        body = {"model": self.served_as or str(self.model), "prompt": [int(i) for i in ids], "temperature": 0.0, **more}
        answer, n = await self.endpoint.ask(
            session, "completions", body, lambda reply: (read(reply), usage(reply)), len(ids) + more["max_tokens"]
        )
        self.endpoint.ledger.answer(*n, None)
        if n[0] is not None and n[0] != len(ids):
            raise EndpointError(
                f"{self.server.place}: it reads {n[0]} tokens where {len(ids)} were sent: a server that takes token "
                "ids as they are is needed, with the interface of vLLM"
            )
        return answer

    def _count(self, found: Found) -> None:
        if found.by_text and not self.report.n_by_text:
            warnings.warn(
                f"{self.server.place} tells tokens as texts, not as ids: spellings of an answer with and without a "
                "blank may count as one (vLLM's return_tokens_as_token_ids gives ids)",
                stacklevel=2,
            )
        with self._lock:
            self.report.n += 1
            self.report.n_by_text += found.by_text
            self.report.n_partial += found.missing > 0
            self.report.largest_missing = max(self.report.largest_missing, found.missing)


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far two models, or one model here and on a server, agree.

    Attributes:
        n: Prompts.
        n_unparsed: Prompts without a label from one or both.
        n_differ: Of the others, prompts with another label.
        largest_difference: Of the first label's share of all labels' probability, over these others.
    """

    n: int
    n_unparsed: int
    n_differ: int
    largest_difference: float

    @property
    def share(self) -> float:
        """Of the prompts with two labels, how many have the same; NaN where there is none."""
        both = self.n - self.n_unparsed
        return 1 - self.n_differ / both if both else math.nan


def compare(
    one: Scorer, other: Scorer, prompts: Sequence[Ids], labels: Sequence[Sequence[int]], threshold: float = 0.5
) -> Agreement:
    """Scores the prompts with both; labels are those of judges: is the first label's share at least the threshold?"""
    found = [dict(each.score(prompts, labels)) for each in (one, other)]
    both = [(found[0][i], found[1][i]) for i in range(len(prompts))]
    shares = [(_share(a), _share(b)) for a, b in both if a.label is not None and b.label is not None]
    return Agreement(
        n=len(prompts),
        n_unparsed=len(prompts) - len(shares),
        n_differ=sum((a >= threshold) != (b >= threshold) for a, b in shares),
        largest_difference=max((abs(a - b) for a, b in shares), default=0.0),
    )


def _share(scored: Scored) -> float:
    masses = [math.exp(each) for each in scored.log_probabilities]
    return masses[0] / sum(masses)


def _text(reply: Body) -> str:
    text = first_choice(reply).get("text")
    if not isinstance(text, str):
        raise ValueError("a choice without text")
    return text
