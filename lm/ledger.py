"""What calls of language models took: requests, tokens and cost of a run, and what they will take."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field

TOKENS_PER_PRICE = 1_000_000
BYTES_PER_TOKEN = 4.0
"""English text has about four bytes per token in the vocabularies of current models; measured ones lie between 3.5
and 4.7. Other scripts have fewer characters, but more bytes per character."""
TOKENS_PER_MESSAGE = 4
"""Role and separators of a message in common chat templates."""


def estimated_tokens(texts: Iterable[str]) -> int:
    """About how many input tokens messages with these texts have: a fourth of their UTF-8 bytes, and four each."""
    return sum(TOKENS_PER_MESSAGE + math.ceil(len(text.encode("utf-8", "replace")) / BYTES_PER_TOKEN) for text in texts)


@dataclass(frozen=True, slots=True)
class Prices:
    """What a model costs in US dollars per million tokens; None: unknown (a model of one's own: 0)."""

    usd_per_million_input: float | None = None
    usd_per_million_output: float | None = None

    def __post_init__(self) -> None:
        for name, price in asdict(self).items():
            if price is not None and not (math.isfinite(price) and price >= 0):
                raise ValueError(f"{name}={price}: expected a price from 0 upwards, or none where it is unknown")

    def cost_usd(self, input_tokens: int | None, output_tokens: int | None) -> float | None:
        """The cost of these tokens; None where a price or a number of tokens is unknown, never 0 for that."""
        cost = 0.0
        for tokens, price in (
            (input_tokens, self.usd_per_million_input),
            (output_tokens, self.usd_per_million_output),
        ):
            if price is None or (tokens is None and price > 0):
                return None
            cost += (tokens or 0) * price / TOKENS_PER_PRICE
        return cost


@dataclass(frozen=True, slots=True)
class Estimate:
    """What calls will take, told beforehand.

    Attributes:
        requests: Asked for.
        cached: Of these, answered before: they take nothing.
        duplicates: Of these, equal to another one of them: asked once.
        calls: To be sent to the server, where nothing fails and no answer has to be asked for again.
        input_tokens: Of these calls; estimated, see ``estimated_tokens``.
        output_tokens: Of these calls at most: the largest length allowed.
        cost_usd: Of these calls at most; None where a price is unknown.
    """

    requests: int
    cached: int
    duplicates: int
    calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: float | None

    def __str__(self) -> str:
        """One line, for plans."""
        cost = "at a price unknown" if self.cost_usd is None else f"{self.cost_usd:.4f} USD at most"
        tokens = f"about {self.input_tokens:,} tokens in, {self.output_tokens:,} out at most"
        return f"{self.calls:,} calls ({self.cached:,} of {self.requests:,} answered before), {tokens}, {cost}"


@dataclass(slots=True)
class Ledger:
    """What the calls of a run took, added up while they come in.

    Attributes:
        sent: Requests sent, also those that failed.
        answered: Answers that could be read.
        retried: Requests sent again, because the server failed or the answer broke off.
        repaired: Answers asked for again, because they did not follow the schema.
        cached: Answers that were there already.
        unparsed: Answers that do not follow their schema, after all repairs.
        refused: Requests that the server refuses for what stands in them.
        failed: Requests without an answer after all retries.
        input_tokens: As the server counts.
        output_tokens: As the server counts.
        uncounted: Answers without a count of tokens.
        priced_usd: What the answers cost whose cost is known.
        unpriced: Answers whose cost is unknown.
    """

    sent: int = 0
    answered: int = 0
    retried: int = 0
    repaired: int = 0
    cached: int = 0
    unparsed: int = 0
    refused: int = 0
    failed: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    uncounted: int = 0
    priced_usd: float = 0.0
    unpriced: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    @property
    def cost_usd(self) -> float | None:
        """The cost of all answers; None where that of any is unknown."""
        return None if self.unpriced else self.priced_usd

    def count(self, name: str, n: int = 1) -> None:
        """Adds to one of the numbers above."""
        with self._lock:
            setattr(self, name, getattr(self, name) + n)

    def answer(self, input_tokens: int | None, output_tokens: int | None, cost_usd: float | None) -> None:
        """Enters an answer that the server gave just now."""
        with self._lock:
            self.answered += 1
            self.input_tokens += input_tokens or 0
            self.output_tokens += output_tokens or 0
            self.uncounted += input_tokens is None or output_tokens is None
            self.priced_usd += cost_usd or 0.0
            self.unpriced += cost_usd is None

    def as_dict(self) -> dict[str, int | float | None]:
        """All numbers by name, the cost among them."""
        names = [name for name in self.__slots__ if not name.startswith("_") and name != "priced_usd"]
        return {**{name: getattr(self, name) for name in names}, "cost_usd": self.cost_usd}
