"""What plug-ins that ask a language model have in common: which model, where, how, and at what price.

A plug-in names the arguments in its own constructor, because the command line reads them there, and hands them to
this one, which keeps them under their names:

    class Mine(Served):
        def __init__(self, model: str, base_url: str = OPENAI, ..., retries: int = 6) -> None:
            super().__init__(model=model, base_url=base_url, ..., retries=retries)
"""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar, Literal, TypeAlias

from lm.chat import Chat, Prices, Server, make_chat

TokensName: TypeAlias = Literal["max_tokens", "max_completion_tokens"]


class Served:
    """A model behind a server, or on this machine.

    Args:
        model: As the server names it.
        base_url: Where the server is; no part of what answers depend on. ``local``: the model itself on this machine,
            by id or folder.
        api_key_env: Name of the environment variable with the key; None: ``OPENAI_API_KEY`` for OpenAI, no key else.
        identity: What is really served, where the model's name does not say.
        temperature: None: none is sent.
        seed: None: none is sent.
        max_tokens: Of an answer.
        max_tokens_name: Newer models of OpenAI want ``max_completion_tokens``.
        usd_per_million_input: Price of a million tokens; None: unknown.
        usd_per_million_output: The same.
        concurrency: Requests open at a time.
        requests_per_minute: None: no limit.
        tokens_per_minute: None: no limit.
        timeout_s: For one request.
        retries: How often a request is sent again.
    """

    runtime_args: ClassVar[tuple[str, ...]] = (
        "base_url", "api_key_env", "usd_per_million_input", "usd_per_million_output", "concurrency",
        "requests_per_minute", "tokens_per_minute", "timeout_s", "retries",
    )  # fmt: skip

    def __init__(
        self,
        *,
        model: str,
        base_url: str,
        api_key_env: str | None,
        identity: str,
        temperature: float | None,
        seed: int | None,
        max_tokens: int,
        max_tokens_name: TokensName,
        usd_per_million_input: float | None,
        usd_per_million_output: float | None,
        concurrency: int,
        requests_per_minute: float | None,
        tokens_per_minute: float | None,
        timeout_s: float,
        retries: int,
    ) -> None:
        self.model, self.base_url, self.api_key_env, self.identity = model, base_url, api_key_env, identity
        self.temperature, self.seed = temperature, seed
        self.max_tokens, self.max_tokens_name = max_tokens, max_tokens_name
        self.usd_per_million_input, self.usd_per_million_output = usd_per_million_input, usd_per_million_output
        self.concurrency, self.retries, self.timeout_s = concurrency, retries, timeout_s
        self.requests_per_minute, self.tokens_per_minute = requests_per_minute, tokens_per_minute
        if max_tokens < 1:
            raise ValueError(f"max_tokens={max_tokens}: expected at least one token of an answer")
        limits = (concurrency, requests_per_minute, tokens_per_minute, timeout_s, retries)
        self._server = Server(base_url, api_key_env, *limits)
        self._prices = Prices(usd_per_million_input, usd_per_million_output)

    @cached_property
    def client(self) -> Chat:
        """Asks the model, and keeps its answers."""
        return make_chat(
            self.model,
            self._server,
            self._prices,
            identity=self.identity,
            max_tokens_name=self.max_tokens_name,
            structured=self._structured,
        )

    @property
    def ledger(self) -> dict[str, int | float | None] | None:
        """What this plug-in took in this process, for provenance.json; None where it has asked nothing."""
        client: Chat | None = self.__dict__.get("client")
        return None if client is None else client.ledger.as_dict()

    @property
    def _structured(self) -> Literal["json_schema", "none"]:
        """How a schema is sent, where requests have one."""
        return "none"
