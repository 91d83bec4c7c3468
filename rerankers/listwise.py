"""Listwise reranking: a language model puts numbered passages in order, window by window, from the bottom to the top.

Sun and others (2023): Is ChatGPT Good at Search? Investigating Large Language Models as Re-Ranking Agents (RankGPT),
https://arxiv.org/abs/2304.09542. A window of w passages moves up by s < w, so that the best w - s of a window are
compared with those above; the last window ends at the top. About n / s calls for a pool of n passages (9 for 100).

    --reranker listwise --reranker-args model=gpt-4o-mini usd_per_million_input=0.15 usd_per_million_output=0.6
    --reranker listwise --reranker-args model=Qwen/Qwen2.5-7B-Instruct base_url=http://localhost:8000/v1 stance=opposing

``stance`` asks for evidence of one side, as the retrieval of evidence in ConQRet does (Dhole and others, 2024,
https://arxiv.org/abs/2412.05206). Their prompts are not ours, which are in ``lm/prompt_files``.

A window waits for the one below it, but questions do not wait for each other: each round asks for one window of every
question at a time. Answers are kept (``lm/chat.py``): a killed run pays again for one block of answers at most.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Literal, TypeAlias, get_args

from tqdm import tqdm

from corpora.fingerprint import digest
from corpora.types import Passage, Pool, Ranking, Stance
from lm.chat import ChatAnswer, ChatRequest
from lm.ledger import Estimate
from lm.numbered import numbered, one_line, read_order
from lm.prompts import Prompt, load_prompt
from lm.served import Served, TokensName
from lm.server import OPENAI
from rerankers.base import reordered

Reading: TypeAlias = Literal["whole", "repaired", "unreadable", "refused"]
READINGS: tuple[Reading, ...] = get_args(Reading)
QUESTION_WORDS = 500
"""Longer questions are cut."""


class Listwise(Served):
    """Orders each pool by what a language model answers.

    Numbers that an answer leaves out follow in the order that they had; repeated and strange ones count for nothing. A
    window whose answer cannot be read at all, or that the server refuses, keeps its order. All of these are counted,
    over all calls, in the warning and in the ``ledgers`` of provenance.json (``orders_repaired`` and so on).

    Args:
        model: As the server names it.
        base_url: Where the server is; no part of what answers depend on. ``local``: the model itself on this machine,
            by id or folder.
        api_key_env: Name of the environment variable with the key; None: ``OPENAI_API_KEY`` for OpenAI, no key else.
        identity: What is really served, where the model's name does not say.
        stance: None: passages that help most to answer the question come first; ``supporting`` or ``opposing``: those
            with the best evidence for that side.
        prompt: Name or path (``lm.prompts.load_prompt``) of another prompt, with the fields ``{passages}`` and
            ``{question}``, and ``{n}`` for the number of passages.
        window: Passages in one request.
        step: How far the window moves up.
        max_words: Of a passage with its title; what is longer is cut.
        temperature: None: none is sent.
        seed: None: none is sent.
        max_tokens: Of an answer: about six for each passage; models that reason before they answer need thousands.
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
    per_question: ClassVar[bool] = True

    def __init__(
        self,
        model: str,
        base_url: str = OPENAI,
        api_key_env: str | None = None,
        identity: str = "",
        stance: Stance | None = None,
        prompt: str | Path | None = None,
        window: int = 20,
        step: int = 10,
        max_words: int = 200,
        temperature: float | None = 0.0,
        seed: int | None = 0,
        max_tokens: int = 512,
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
        if not 1 <= step < window:
            raise ValueError(f"window={window}, step={step}: expected a step from 1 to below the window")
        if max_words < 1:
            raise ValueError(f"max_words={max_words}: expected at least one word of a passage")
        if stance is not None and prompt is not None:
            raise ValueError(f"stance={stance} and prompt={prompt}: the stance chooses a prompt of ours: give only one")
        self.stance, self.prompt, self.window, self.step, self.max_words = stance, prompt, window, step, max_words
        self._readings: Counter[Reading] = Counter()

    @property
    def ledger(self) -> dict[str, int | float | None] | None:
        """What this reranker took in this process, and how well its answers could be read, kept ones too."""
        taken = super().ledger
        return None if taken is None else taken | {f"orders_{name}": self._readings[name] for name in READINGS}

    @cached_property
    def fingerprint(self) -> str:
        """A hash of model, prompt and parameters; neither the address nor the key counts."""
        made = ["Listwise", self.version, self.window, self.step, self.max_words]
        sent = [self.temperature, self.seed, self.max_tokens]
        return digest([made, self.client.fingerprint, self._prompt.hash, sent])

    def rerank(self, pools: Sequence[Pool]) -> list[Ranking]:
        """Whole pools in the order that the model's answers make."""
        orders = [list(range(len(pool.ranking))) for pool in pools]
        total = sum(1 for order in orders for _ in windows(len(order), self.window, self.step))
        before = self._readings.copy()
        with tqdm(total=total, desc="listwise", unit="call", disable=None, leave=False) as bar:
            for asked in self._rounds(pools, orders):
                for place, answer in self.client.complete([request for _, _, request in asked]):
                    i, part, _ = asked[place]
                    orders[i][part], reading = answered(orders[i][part], answer)
                    self._readings[reading] += 1
                    bar.update()
        _warn(self._readings, self._readings - before)
        return [reordered(*each) for each in zip(pools, orders, strict=True)]

    def estimate(self, pools: Sequence[Pool]) -> Estimate:
        """Calls, tokens and cost; asks nothing.

        What stands in a window depends on the answers below it. Those that are kept are taken, as a run that was killed
        and goes on would take them; where there is none, the window is told as if its order stayed.
        """
        orders = [list(range(len(pool.ranking))) for pool in pools]
        requests: list[ChatRequest] = []
        for asked in self._rounds(pools, orders):
            now = [request for _, _, request in asked]
            requests += now
            for (i, part, _), answer in zip(asked, self.client.kept(now), strict=True):
                if answer is not None:
                    orders[i][part], _ = answered(orders[i][part], answer)
        return self.client.estimate(requests)

    def _rounds(
        self, pools: Sequence[Pool], orders: Sequence[list[int]]
    ) -> Iterator[list[tuple[int, slice, ChatRequest]]]:
        """Yields one window of every question at a time: question, window, request; by the orders of that moment."""
        plans = [[slice(*each) for each in windows(len(order), self.window, self.step)] for order in orders]
        for turn in range(max(map(len, plans), default=0)):
            at = [(i, plan[turn]) for i, plan in enumerate(plans) if turn < len(plan)]
            yield [(i, part, self._request(pools[i], orders[i][part])) for i, part in at]

    @cached_property
    def _prompt(self) -> Prompt:
        own = "listwise" if self.stance is None else f"listwise_{self.stance}"
        return load_prompt(self.prompt or own, needs=("passages", "question"), known=("n",))

    def _request(self, pool: Pool, positions: Sequence[int]) -> ChatRequest:
        values = {
            "passages": numbered([_read(pool.passages[position]) for position in positions], self.max_words),
            "question": one_line(pool.query.text, QUESTION_WORDS),
            "n": str(len(positions)),
        }
        return ChatRequest(self._prompt.render(values), self.max_tokens, self.temperature, self.seed)


def windows(n: int, window: int, step: int) -> Iterator[tuple[int, int]]:
    """Yields (start, stop) of each window over n passages, the lowest first; the last one starts at the top.

    One passage alone needs none.
    """
    start, stop = n, n
    while start > 0 and n > 1:
        start = max(0, stop - window)
        yield start, stop
        stop -= step


def answered(part: Sequence[int], answer: ChatAnswer) -> tuple[list[int], Reading]:
    """The passages of a window in the order of the answer, and how well that could be read."""
    if answer.status != "ok":
        return list(part), "refused"
    order = read_order(answer.text, len(part))
    if not order.positions:
        return list(part), "unreadable"
    everything = dict.fromkeys((*order.positions, *range(len(part))))
    return [part[i] for i in everything], "whole" if order.whole else "repaired"


def _read(passage: Passage) -> str:
    return f"{passage.title}: {passage.text}" if passage.title.strip() else passage.text


def _warn(counts: Counter[Reading], now: Counter[Reading]) -> None:
    """One line about the answers that were not whole.

    Args:
        counts: Of all calls so far: they grow, so that Python never takes the line for one that was shown before.
        now: Of these, those of the last call; only bad ones among them are worth a line.
    """
    told: dict[Reading, str] = {
        "repaired": "repaired (numbers missing, repeated or strange)",
        "unreadable": "unreadable",
        "refused": "refused",
    }
    if not any(now[reading] for reading in told):
        return
    parts = [f"{counts[reading]} {what}" for reading, what in told.items() if counts[reading]]
    kept = ""
    if not now["whole"] and not now["repaired"]:
        of = "them" if now == counts else f"the last {now.total()}"
        kept = f"; NOT ONE of {of} could be read: the order there is the retriever's (or the reranker's before)"
    elif counts["unreadable"] or counts["refused"]:
        kept = "; windows without a readable answer keep their order"
    warnings.warn(f"Listwise: of {counts.total()} answers so far, {', '.join(parts)}{kept}", stacklevel=3)
