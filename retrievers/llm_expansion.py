"""Expanders that ask a language model: perspectives (``llm``), or a hypothetical passage (``hyde``).

    --expander llm --expander-args model=gpt-4o-mini usd_per_million_input=0.15 usd_per_million_output=0.6
    --expander llm --expander-args model=Qwen/Qwen2.5-7B-Instruct base_url=http://localhost:8000/v1
    --expander llm --expander-args model=gpt-4-0613 prompt=berds_expansion
    --expander hyde --expander-args model=... samples=4 temperature=0.7

``llm`` is BERDS' expansion (Chen and Choi, 2024, https://arxiv.org/abs/2409.18110): one call a question, perspectives
as JSON, each of them a query. ``hyde`` is that of Gao and others (2023), https://arxiv.org/abs/2212.10496: passages
that might answer the question are searched with in its place (they average the vectors; here their rankings are
merged).

Answers are kept (``lm/chat.py``), so nothing is paid for twice. A broken answer is asked for again, else the question
is searched as it is, and counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Literal

from tqdm import tqdm

from corpora.fingerprint import digest
from corpora.types import Query
from lm.chat import ChatAnswer, ChatRequest
from lm.ledger import Estimate
from lm.prompts import Prompt, load_prompt
from lm.served import Served, TokensName
from lm.server import OPENAI
from lm.structured import without_thought
from retrievers.expansion import Form, expanded, warn_of_empty

SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "perspectives": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"name": {"type": "string"}, "text": {"type": "string"}},
                "required": ["name", "text"],
                "additionalProperties": False,
            },
        }
    },
    "required": ["perspectives"],
    "additionalProperties": False,
}
"""Of our own prompt."""
PLAIN: Mapping[str, Any] = {"type": "object", "additionalProperties": {"type": "string"}, "minProperties": 1}
"""Of any other prompt, the authors' for one: name -> text."""


class Written(Served):
    """What expanders that ask a model have in common.

    Args:
        model: As the server names it.
        base_url: Where the server is; no part of what answers depend on, as for the judge ``llm``. ``local``: the
            model itself on this machine, by id or folder.
        api_key_env: Name of the environment variable with the key; None: ``OPENAI_API_KEY`` for OpenAI, no key else.
        identity: What is really served, where the model's name does not say.
        prompt: Name or path (``lm.prompts.load_prompt``), with the field ``{question}``; None: the expander's own.
        form: ``both`` (the question, a blank, what was written) or ``perspective`` (what was written alone); None:
            ``both`` for ``llm``, as the code of BERDS does, and ``perspective`` for ``hyde``.
        samples: Answers per question, with seeds that count up: useful with a temperature above 0.
        question: Whether the question itself is searched for as well.
        temperature: None: none is sent.
        seed: None: none is sent.
        max_tokens: Of an answer.
        max_tokens_name: Newer models of OpenAI want ``max_completion_tokens``.
        family: Of the model, for example ``gpt``: tables say where the gold perspectives were written by the same one;
            None: what its name tells.
        usd_per_million_input: Price of a million tokens; None: unknown.
        usd_per_million_output: The same.
        concurrency: Requests open at a time.
        requests_per_minute: None: no limit.
        tokens_per_minute: None: no limit.
        timeout_s: For one request.
        retries: How often a request is sent again.
    """

    version: ClassVar[int] = 1
    own_prompt: ClassVar[str]
    own_form: ClassVar[Form]

    def __init__(
        self,
        model: str,
        base_url: str = OPENAI,
        api_key_env: str | None = None,
        identity: str = "",
        prompt: str | Path | None = None,
        form: Form | None = None,
        samples: int = 1,
        question: bool = False,
        temperature: float | None = 0.0,
        seed: int | None = 0,
        max_tokens: int = 2048,
        max_tokens_name: TokensName = "max_tokens",
        family: str | None = None,
        usd_per_million_input: float | None = None,
        usd_per_million_output: float | None = None,
        concurrency: int = 16,
        requests_per_minute: float | None = None,
        tokens_per_minute: float | None = None,
        timeout_s: float = 120.0,
        retries: int = 6,
    ) -> None:
        super().__init__(
            model=model,
            base_url=base_url,
            api_key_env=api_key_env,
            identity=identity,
            temperature=temperature,
            seed=seed,
            max_tokens=max_tokens,
            max_tokens_name=max_tokens_name,
            usd_per_million_input=usd_per_million_input,
            usd_per_million_output=usd_per_million_output,
            concurrency=concurrency,
            requests_per_minute=requests_per_minute,
            tokens_per_minute=tokens_per_minute,
            timeout_s=timeout_s,
            retries=retries,
        )
        if samples < 1 or (samples > 1 and seed is None):
            raise ValueError(f"samples={samples}, seed={seed}: expected at least one, and a seed to tell several apart")
        self.prompt, self.form, self.samples, self.question = prompt, form, samples, question
        self.family = family

    @cached_property
    def fingerprint(self) -> str:
        """A hash of model, prompt and parameters; neither the address nor the key counts."""
        sent = [self.temperature, self.seed, self.samples, self.max_tokens]
        made = [type(self).__name__, self.version, self._form, self.question]
        return digest([made, self.client.fingerprint, self._prompt.hash, sent])

    def expand(self, queries: Sequence[Query]) -> list[tuple[Query, ...]]:
        """What the model wrote for each query; the query itself where it wrote nothing that can be read."""
        requests = self._requests(queries)
        texts: list[list[str]] = [[] for _ in requests]
        answers = self.client.complete(requests)
        for position, answer in tqdm(answers, "expand", len(requests), unit="call", disable=None, leave=False):
            texts[position] = self.read(answer)
        groups = [list(chain(*texts[i : i + self.samples])) for i in range(0, len(texts), self.samples)]
        found = [expanded(*each, self._form, self.question) for each in zip(queries, groups, strict=True)]
        warn_of_empty(type(self).__name__, found)
        return found

    def estimate(self, queries: Sequence[Query]) -> Estimate:
        """Calls, tokens and cost, as far as answers are not kept already; asks nothing."""
        return self.client.estimate(self._requests(queries))

    def read(self, answer: ChatAnswer) -> list[str]:
        """The texts in an answer; none where it cannot be read."""
        raise NotImplementedError

    @cached_property
    def _prompt(self) -> Prompt:
        return load_prompt(self.prompt or self.own_prompt, needs=("question",), known=())

    @property
    def _form(self) -> Form:
        return self.form or self.own_form

    @property
    def _schema(self) -> Mapping[str, Any] | None:
        return None

    @property
    def _structured(self) -> Literal["json_schema", "none"]:
        return "json_schema" if self._schema is SCHEMA else "none"

    def _requests(self, queries: Sequence[Query]) -> list[ChatRequest]:
        return [
            ChatRequest(
                self._prompt.render({"question": query.text}),
                self.max_tokens,
                self.temperature,
                None if self.seed is None else self.seed + i,
                schema=self._schema,
            )
            for query in queries
            for i in range(self.samples)
        ]


class LlmExpander(Written):
    """Perspectives as JSON, one call a question; the arguments are those of ``Written``."""

    own_prompt: ClassVar[str] = "perspectives"
    own_form: ClassVar[Form] = "both"

    def read(self, answer: ChatAnswer) -> list[str]:
        """The perspectives' texts, in the order written."""
        if answer.status != "ok":
            return []
        if self._schema is SCHEMA:
            return [each["text"] for each in answer.parsed["perspectives"]]
        return list(answer.parsed.values())

    @property
    def _schema(self) -> Mapping[str, Any]:
        return SCHEMA if self.prompt in (None, self.own_prompt) else PLAIN


class HyDE(Written):
    """Hypothetical passages; the arguments are those of ``Written``."""

    own_prompt: ClassVar[str] = "hypothetical_passage"
    own_form: ClassVar[Form] = "perspective"

    def read(self, answer: ChatAnswer) -> list[str]:
        """The passage."""
        return [without_thought(answer.text)] if answer.status == "ok" else []
