"""Messages become one string, and the string becomes token ids: explicit, pinned chat formats.

A model's own template moves with its repository, so the formats that results are compared by stand here as strings.
``mistral`` is what Mistral-7B-Instruct-v0.2 and the published evaluator of BERDS read (one ``<s>``; a system message is
dropped, as the authors do: Chen and Choi, 2024, https://arxiv.org/abs/2409.18110).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lm.prompts import Message

TEMPLATE = "template"
"""The rendering that takes the chat template of the model's own tokenizer."""


@dataclass(frozen=True, slots=True)
class Rendering:
    """A chat format: ``{}`` stands for a message's text.

    Attributes:
        begin: Before the first message.
        user: A user's message.
        assistant: An earlier answer.
        cue: Between the last message and the answer.
        system: A system message; None: it is dropped.
    """

    begin: str
    user: str
    assistant: str
    cue: str
    system: str | None


def _chatml(role: str) -> str:
    return f"<|im_start|>{role}\n{{}}<|im_end|>\n"


def _llama3(role: str) -> str:
    return f"<|start_header_id|>{role}<|end_header_id|>\n\n{{}}<|eot_id|>"


RENDERINGS: Mapping[str, Rendering] = {
    "mistral": Rendering("<s>", "[INST] {} [/INST]", " {}</s>", "", None),
    "chatml": Rendering("", _chatml("user"), _chatml("assistant"), "<|im_start|>assistant\n", _chatml("system")),
    "llama3": Rendering(
        "<|begin_of_text|>",
        _llama3("user"),
        _llama3("assistant"),
        "<|start_header_id|>assistant<|end_header_id|>\n\n",
        _llama3("system"),
    ),
    "plain": Rendering("", "{}", " {}\n\n", "", "{}\n\n"),
}
"""``plain`` is for models without a chat format: the texts alone, after the first token that the tokenizer puts."""


def check_rendering(rendering: str) -> None:
    """Refuses an unknown name.

    Raises:
        ValueError: Names the known ones.
    """
    if rendering not in RENDERINGS and rendering != TEMPLATE:
        raise ValueError(f"rendering={rendering}: expected one of {', '.join((*RENDERINGS, TEMPLATE))}")


def render_chat(messages: Sequence[Message], rendering: str, tokenizer: Any = None) -> str:
    """The string that a model reads before its answer; special tokens stand in it as text.

    Args:
        messages: Of ``Prompt.render``: nothing in them that a user did not write looks like a marker.
        rendering: A name of ``RENDERINGS``, or ``template``.
        tokenizer: The model's; needed for ``template`` only.
    """
    if rendering == TEMPLATE:
        chat = [{"role": each.role, "content": each.content} for each in messages]
        rendered: str = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        return rendered
    form = RENDERINGS[rendering]
    turns = {"system": form.system, "user": form.user, "assistant": form.assistant}
    parts = [turn.replace("{}", each.content) for each in messages if (turn := turns[each.role]) is not None]
    return "".join((form.begin, *parts, form.cue))


def find_template(tokenizer: Any, model: str) -> str:
    """The chat template of a model, which is a part of what its answers depend on.

    Raises:
        ValueError: It has none.
    """
    template = tokenizer.chat_template
    if not template:
        names = ", ".join(RENDERINGS)
        raise ValueError(f"{model} has no chat template: give the rendering that it was trained with ({names})")
    return str(template)


def read_ids(tokenizer: Any, texts: Sequence[str], rendering: str) -> list[list[int]]:
    """The token ids of rendered strings; nothing is cut.

    The string says by itself where it begins, so the tokenizer adds nothing; only ``plain`` gets the tokens that it
    puts before a text (a BOS, where it has the habit), never those that it puts behind one.
    """
    if not texts:
        return []
    ids: list[list[int]] = tokenizer(list(texts), add_special_tokens=False, verbose=False)["input_ids"]
    if rendering != "plain":
        return ids
    return [[*_first(tokenizer), *each] for each in ids]


def _first(tokenizer: Any) -> list[int]:
    bare = tokenizer("a", add_special_tokens=False)["input_ids"]
    usual: list[int] = tokenizer("a")["input_ids"]
    return next((usual[:i] for i in range(len(usual)) if usual[i : i + len(bare)] == bare), [])


def special_markers(tokenizer: Any) -> frozenset[str]:
    """Strings that this tokenizer turns into one special token wherever they stand in a text."""
    found = set()
    for token in tokenizer.added_tokens_decoder.values():
        text = token.content.strip()
        bracketed = text[:1] in "<[{" and text[-1:] in ">]}"
        if len(text) > 1 and (token.special or bracketed):
            found.add(text)
    return frozenset(found)


def special_ids(tokenizer: Any) -> frozenset[int]:
    """Ids of the tokens that ``special_markers`` are about; a word that the tokenizer does not know is none of them."""
    markers, unknown = special_markers(tokenizer), tokenizer.unk_token_id
    tokens = tokenizer.added_tokens_decoder.items()
    return frozenset(i for i, token in tokens if token.content.strip() in markers and i != unknown)
