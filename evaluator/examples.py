"""Labelled pairs as token ids: what a model reads in training is, id by id, what its judge will give it later."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from evaluator.pairs import LabelledPair, labels_of
from evaluator.recipe import Recipe
from evaluator.types import Pair, document
from lm.pairs import PairTokenizer
from lm.prompts import Message, Prompt
from lm.reading import PromptReader
from lm.rendering import RENDERINGS, TEMPLATE, read_ids, render_chat
from lm.text import fill
from lm.transformer import Row

T = TypeVar("T")

ANSWERS = ("No", "Yes")
"""The answers to learn, by label."""


@dataclass(frozen=True, slots=True)
class Example:
    """One pair, ready for a model.

    Attributes:
        row: ``input_ids``, and perhaps ``token_type_ids``; of a causal model with the answer at the end.
        label: Whether the passage supports the perspective.
        n_answer: Causal: how many tokens at the end are the answer, which alone counts in the loss; otherwise 0.
        weight: Of its loss.
    """

    row: Row
    label: bool
    n_answer: int
    weight: float

    @property
    def length(self) -> int:
        """Tokens."""
        return len(self.row["input_ids"])

    @property
    def units(self) -> float:
        """What it adds to the number by which a batch's summed loss is divided."""
        return self.weight * max(1, self.n_answer)


def class_weights(labels: Sequence[bool], recipe: Recipe) -> tuple[float, float]:
    """The weights of No and Yes in the loss; ``balanced``: both classes have half of the whole weight."""
    if recipe.class_weights is None:
        return 1.0, 1.0
    if recipe.class_weights == "balanced":
        n, n_yes = len(labels), sum(labels)
        return n / (2 * (n - n_yes)), n / (2 * n_yes)
    return recipe.class_weights


def make_examples(
    pairs: Sequence[LabelledPair],
    recipe: Recipe,
    tokenizer: Any,
    prompt: Prompt | None,
    weights: tuple[float, float] = (1.0, 1.0),
) -> list[Example]:
    """The pairs as a model reads them.

    Args:
        pairs: All labelled.
        recipe: Says what is put together how.
        tokenizer: The base model's.
        prompt: The recipe's; None for a cross-encoder.
        weights: Of No and Yes.

    Raises:
        ValueError: A pair does not fit into ``max_length`` even without its document; named by its position.
    """
    labels = labels_of(pairs)
    texts = [each.pair for each in pairs]
    if prompt is None:
        pieces = PairTokenizer(tokenizer, recipe.cut, recipe.max_length)
        found = pieces.rows([texts_of(pair, recipe.texts) for pair in texts])
        rows = _checked(found, texts, recipe.max_length)
        return [Example(row, label, 0, weights[label]) for row, label in zip(rows, labels, strict=True)]
    answers = [answer_ids(tokenizer, recipe, answer) for answer in ANSWERS]
    room = recipe.max_length - max(map(len, answers))  # the same for both: a cut must not give the label away
    reader = PromptReader(prompt, recipe.rendering, tokenizer, room)
    prompts = _checked(reader.ids([values_of(pair) for pair in texts]), texts, room)
    return [
        Example({"input_ids": [*ids, *answers[label]]}, label, len(answers[label]), weights[label])
        for ids, label in zip(prompts, labels, strict=True)
    ]


def values_of(pair: Pair) -> dict[str, str]:
    """What a prompt may be filled with."""
    return {"passage": document(pair.passage), "perspective": pair.perspective.text, "question": pair.question.text}


def answer_ids(tokenizer: Any, recipe: Recipe, answer: str) -> list[int]:
    """The ids of an answer as they follow the prompt, and the end token where the recipe wants one.

    Raises:
        ValueError: The tokenizer has no end token.
    """
    before, text = _around(recipe.rendering, answer, tokenizer)
    bare = read_ids(tokenizer, [before], recipe.rendering)[0]
    both = read_ids(tokenizer, [before + text], recipe.rendering)[0]
    if both[: len(bare)] == bare and len(both) > len(bare):
        ids = both[len(bare) :]
    else:  # the tokenizer joins the answer with what is before it, which a judge never sees
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    if not recipe.end_token:
        return ids
    if tokenizer.eos_token_id is None:
        raise ValueError("the tokenizer has no end token: set end_token=false")
    return [*ids, tokenizer.eos_token_id]


def texts_of(pair: Pair, templates: tuple[str, str]) -> tuple[str, str]:
    """The two texts that a cross-encoder reads."""
    values = {"document": document(pair.passage), "perspective": pair.perspective.text, "question": pair.question.text}
    return fill(templates[0], values), fill(templates[1], values)


def _around(rendering: str, answer: str, tokenizer: Any) -> tuple[str, str]:
    """The end of a rendered prompt, and the answer behind it with the blank that the format puts between."""
    question = Message("user", "Question?")
    before = render_chat([question], rendering, tokenizer)
    if rendering == TEMPLATE:
        chat = [{"role": "user", "content": question.content}, {"role": "assistant", "content": answer}]
        after: str = tokenizer.apply_chat_template(chat, tokenize=False)
        behind = after.removeprefix(before) if after.startswith(before) else answer
        return before, behind[: behind.find(answer)] + answer
    form = RENDERINGS[rendering]
    return before, form.assistant.partition("{}")[0].removeprefix(form.cue) + answer


def _checked(rows: Sequence[T | None], pairs: Sequence[Pair], room: int) -> list[T]:
    for position, (row, pair) in enumerate(zip(rows, pairs, strict=True), 1):
        if row is None:
            text = pair.perspective.text
            shown = text if len(text) < 60 else f"{text[:57]}..."
            raise ValueError(
                f"pair {position} ({shown!r}) leaves no room for its document in {room} tokens: raise max_length"
            )
    return [row for row in rows if row is not None]
