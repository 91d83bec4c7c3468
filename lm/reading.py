"""A prompt and a tokenizer: values in, the text that is read and its token ids out; hostile and endless values too."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from lm.prompts import Prompt, neutralise
from lm.rendering import read_ids, render_chat, special_ids, special_markers
from lm.text import clean, shorten

Values = Mapping[str, str]


class PromptReader:
    """Reads values through a prompt as one model does.

    Args:
        prompt: See ``lm.prompts.load_prompt``.
        rendering: See ``lm.rendering.RENDERINGS``.
        tokenizer: The model's, in transformers' form.
        max_length: Tokens of a prompt.
        cut: The value that is cut, at its end, where a prompt is too long.
    """

    def __init__(self, prompt: Prompt, rendering: str, tokenizer: Any, max_length: int, cut: str = "passage") -> None:
        self.prompt = prompt
        self.rendering = rendering
        self.tokenizer = tokenizer
        self.max_length = max_length
        self.cut = cut

    def ids(self, values: Sequence[Values]) -> list[list[int] | None]:
        """The token ids of each prompt; None where it is too long even without the value that may be cut."""
        found: list[list[int] | None] = []
        short = [self._shortened(each) for each in values]
        for each, ids in zip(short, self._read(short), strict=True):
            safe = each
            if self._specials(ids) != self._structure:
                safe, ids = self._tamed(each)
            found.append(ids if len(ids) <= self.max_length else self._cut(safe))
        return found

    def _read(self, values: Sequence[Values]) -> list[list[int]]:
        texts = [
            render_chat(self.prompt.render(each, self._markers), self.rendering, self.tokenizer) for each in values
        ]
        return read_ids(self.tokenizer, texts, self.rendering)

    @cached_property
    def _markers(self) -> frozenset[str]:
        return special_markers(self.tokenizer)

    @cached_property
    def _special_ids(self) -> frozenset[int]:
        return special_ids(self.tokenizer)

    @cached_property
    def _structure(self) -> list[int]:
        """The special tokens of every prompt, in order, whatever the values are."""
        return self._specials(self._read([dict.fromkeys(self.prompt.names, "x")])[0])

    def _specials(self, ids: Sequence[int]) -> list[int]:
        return [token for token in ids if token in self._special_ids]

    def _tamed(self, values: Values) -> tuple[Values, list[int]]:
        """The values without what this tokenizer still takes for a special token.

        Some tokenizers normalise a text first (full-width signs become plain ones), and find their tokens then.
        """
        steps: tuple[Callable[[str], str], ...] = (
            lambda text: unicodedata.normalize("NFKC", text),
            lambda text: re.sub(r"[^\w\s.,;:!?'\"()-]", " ", unicodedata.normalize("NFKC", text)),
        )
        for step in steps:
            tamed = {name: step(text) for name, text in values.items()}
            ids = self._read([tamed])[0]
            if self._specials(ids) == self._structure:
                return tamed, ids
        raise ValueError(f"the tokenizer finds special tokens in plain words of {list(values.values())!r:.200}")

    def _shortened(self, values: Values) -> Values:
        """The value that may be cut without an end that is certainly cut, so that no book is tokenised."""
        return {**values, self.cut: shorten(clean(values[self.cut]), self.max_length, self._count)}

    def _count(self, text: str) -> int:
        return len(self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])

    def _cut(self, values: Values) -> list[int] | None:
        """The prompt with as much of the value as fits."""
        text = neutralise(values[self.cut], self._markers)  # as it will stand there: it is measured here
        end, ids = len(text), self._read([values])[0]
        while len(ids) > self.max_length:
            if not end:
                return None
            spare = len(ids) - self.max_length
            tokens = self._count(text[:end])
            end = int(end * (tokens - spare) / tokens) if 0 < spare < tokens else 0
            blank = text.rfind(" ", 0, end + 1)
            end = blank if blank > end // 2 else end
            ids = self._read([{**values, self.cut: text[:end]}])[0]
        return ids
