"""The likeliest tokens that a server with ``/v1/completions`` tells, and what they say about labels."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lm.causal import Scored
from lm.endpoint import Body
from lm.replies import alternatives

SPACES = " \u2581\u0120"
"""A blank, and how SentencePiece and byte-level tokenizers write it."""

_BY_ID = re.compile(r"token_id:(\d+)")


@dataclass(frozen=True, slots=True)
class Found:
    """What is known of one prompt.

    Attributes:
        scored: As a model on this machine would give it.
        by_text: Whether tokens came as texts, so that spellings with and without a blank may have been one.
        missing: The most that labels' tokens which were not told can add to the probabilities of all labels together.
    """

    scored: Scored
    by_text: bool
    missing: float


class TopTokenReader:
    """From the tokens that a server tells to the probabilities of labels.

    Args:
        tokenizer: The model's.
        labels: The token ids that count as each label.

    Raises:
        ValueError: Two labels have tokens that look alike.
    """

    def __init__(self, tokenizer: Any, labels: Sequence[Sequence[int]]) -> None:
        self.tokenizer, self.labels = tokenizer, labels
        self.by_id = {token: label for label, ids in enumerate(labels) for token in ids}
        self.by_text: dict[str, int] = {}
        for token, label in ((token, label) for label, ids in enumerate(labels) for token in ids):
            for text in (tokenizer.decode([token]), tokenizer.convert_ids_to_tokens(token)):
                if self.by_text.setdefault(text.strip(SPACES), label) != label:
                    raise ValueError(
                        f"token {text!r} belongs to two labels: give words that differ in more than blanks"
                    )

    def read(self, told: Sequence[tuple[str, float]]) -> Found:
        """The labels' log-probabilities.

        Args:
            told: Tokens and log-probabilities, the likeliest first.

        Raises:
            ValueError: A token that this tokenizer does not have.
        """
        ids = [int(found[1]) if (found := _BY_ID.fullmatch(token)) else None for token, _ in told]
        by_text = None in ids
        if not by_text and max(number or 0 for number in ids) >= len(self.tokenizer):
            raise ValueError("a token that the tokenizer does not have")
        owners = [
            self.by_text.get(token.strip(SPACES)) if by_text else self.by_id.get(number or 0)
            for (token, _), number in zip(told, ids, strict=True)
        ]
        masses = [
            sum(math.exp(p) for (_, p), owner in zip(told, owners, strict=True) if owner == label)
            for label in range(len(self.labels))
        ]
        n_missing = max(0, len(self.by_id) - sum(owner is not None for owner in owners))
        untold = max(0.0, 1.0 - sum(math.exp(p) for _, p in told))
        best = told[0][0] if by_text else str(self.tokenizer.decode([ids[0]]))
        logs = tuple(math.log(mass) if mass else -math.inf for mass in masses)
        missing = min(n_missing * math.exp(told[-1][1]), untold)
        return Found(Scored(logs, owners[0], best), by_text, missing)


def first_choice(reply: Body) -> dict[str, Any]:
    """The first choice of a reply of ``/v1/completions``; ValueError where there is none."""
    choices = reply.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(choice, dict):
        raise ValueError("no choices")
    return choice


def read_top_tokens(reply: Body) -> list[tuple[str, float]] | None:
    """Tokens and log-probabilities at the first place, the likeliest first; None where the server gives none."""
    logprobs = first_choice(reply).get("logprobs")
    if not isinstance(logprobs, dict):
        return None
    places = logprobs.get("top_logprobs")
    place = places[0] if isinstance(places, list) and places else None
    if not isinstance(place, dict) or not place:
        return None
    found = dict(place)
    for token, value in zip(logprobs.get("tokens") or [], logprobs.get("token_logprobs") or [], strict=False):
        found.setdefault(token, value)  # what was generated may stand beside the list
        break
    told = alternatives([{"token": token, "logprob": value} for token, value in found.items()])
    if not told or sum(math.exp(p) for _, p in told) > 1.01:
        raise ValueError("log-probabilities that are none")
    return list(told)
