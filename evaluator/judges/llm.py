"""A judge behind any server with OpenAI's chat interface: OpenAI itself, vLLM, llama.cpp, Ollama, OpenRouter ...

    --judge llm --judge-args model=gpt-4o-mini usd_per_million_input=0.15 usd_per_million_output=0.6
    --judge llm --judge-args model=Qwen/Qwen2.5-7B-Instruct base_url=http://localhost:8000/v1

The key comes from the environment: ``OPENAI_API_KEY`` for OpenAI, the variable that ``api_key_env`` names for others.
BERDS (Chen and Choi, 2024, https://arxiv.org/abs/2409.18110, Table 7) found GPT-4 in agreement with people like this:
F1 65.6 without an example, 67.8 with one (``prompt=berds``, ``prompt=berds_1shot``; ours: ``support``,
``support_1shot``).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from corpora.fingerprint import digest
from evaluator.judges.yes_no import read_judgement
from evaluator.types import Judgement, Pair, document
from lm.chat import ChatRequest
from lm.ledger import Estimate, estimated_tokens
from lm.prompts import Message, Prompt, load_prompt
from lm.served import Served, TokensName
from lm.server import LOCAL, OPENAI

TOP_LOGPROBS = 5
"""Alternatives asked for at each place: as many as all servers with log-probabilities give."""
TYPICAL = {"passage": "x" * 620, "perspective": "x" * 80, "question": "x" * 80}
"""A pair of usual length, to tell a price beforehand: 100 words, and a sentence."""


class Llm(Served):
    """Asks a language model whether the passage supports the perspective.

    The probability is that of Yes against No at the first word of the answer, where the server gives
    log-probabilities; else 1 or 0, as the answer says. What begins with neither is unparsed, and so is a request that
    the server refuses for its text (too long, content policy).

    Args:
        model: As the server names it.
        base_url: Where the server is; ``local``: the model is loaded here (its answers are texts; the judge
            ``mistral`` reads probabilities). An address is no part of what answers depend on, because a model moves
            between machines: where its name says too little, give an ``identity``.
        api_key_env: Name of the environment variable with the key; None: ``OPENAI_API_KEY`` for OpenAI, no key else.
        identity: What is really served, where the model's name does not say (``default``; a quantised copy).
        prompt: Name or path (``lm.prompts.load_prompt``).
        logprobs: Whether log-probabilities are asked for; some servers refuse that.
        temperature: None: none is sent (some models take no other than their own).
        seed: None: none is sent.
        max_tokens: Of an answer; models that reason before they answer need thousands.
        max_tokens_name: Newer models of OpenAI want ``max_completion_tokens``.
        usd_per_million_input: Price of a million tokens; None: unknown.
        usd_per_million_output: The same.
        concurrency: Requests open at a time.
        requests_per_minute: None: no limit.
        tokens_per_minute: None: no limit.
        timeout_s: For one request.
        retries: How often a request is sent again.
    """

    version: ClassVar[int] = 1

    def __init__(
        self,
        model: str,
        base_url: str = OPENAI,
        api_key_env: str | None = None,
        identity: str = "",
        prompt: str | Path = "support",
        logprobs: bool = True,
        temperature: float | None = 0.0,
        seed: int | None = 0,
        max_tokens: int = 16,
        max_tokens_name: TokensName = "max_tokens",
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
        self.prompt, self.logprobs = prompt, logprobs

    @cached_property
    def fingerprint(self) -> str:
        """A hash of model, prompt and parameters; neither the address nor the key counts."""
        sent = [self.logprobs and TOP_LOGPROBS, self.temperature, self.seed, self.max_tokens]
        return digest(["Llm", self.version, self.client.fingerprint, self._prompt.hash, sent])

    def render(self, pair: Pair) -> str:
        """The messages as JSON."""
        return json.dumps([[each.role, each.content] for each in self._messages(pair)], ensure_ascii=False)

    def judge(self, pairs: Sequence[Pair]) -> Iterator[tuple[int, Judgement]]:
        """(position, judgement) as answers come; an error at the end says how many pairs have none."""
        for position, answer in self.client.complete([self._request(pair) for pair in pairs]):
            yield position, read_judgement(answer)

    def estimate(self, pairs: Sequence[Pair]) -> Estimate:
        """Calls, tokens and cost of judging these pairs, as far as answers are not kept already; asks nothing."""
        return self.client.estimate([self._request(pair) for pair in pairs])

    @property
    def cost_usd_per_pair(self) -> float | None:
        """At most, for a pair of usual length; None where a price is unknown."""
        tokens = estimated_tokens(each.content for each in self._prompt.render(TYPICAL))
        return 0.0 if self.base_url == LOCAL else self._prices.cost_usd(tokens, self.max_tokens)

    def _request(self, pair: Pair) -> ChatRequest:
        top = TOP_LOGPROBS if self.logprobs else 0
        return ChatRequest(self._messages(pair), self.max_tokens, self.temperature, self.seed, top)

    def _messages(self, pair: Pair) -> tuple[Message, ...]:
        texts = (document(pair.passage), pair.perspective.text, pair.question.text)
        return self._prompt.render(dict(zip(("passage", "perspective", "question"), texts, strict=True)))

    @cached_property
    def _prompt(self) -> Prompt:
        return load_prompt(self.prompt)
