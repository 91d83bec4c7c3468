"""Prompts: messages with fields, filled in one pass, by name, from a file, or from the authors' repository.

A prompt is data: it has an id, for people, and a hash of its messages, for fingerprints. Ours are the YAML files in
``prompt_files``; a file of somebody else's may also be text in which ``<|im_start|>role`` and ``<|im_end|>`` separate
the messages, as the prompts of BERDS are (Chen and Choi, 2024, https://arxiv.org/abs/2409.18110).

    prompt = load_prompt("support")
    messages = prompt.render({"passage": text, "perspective": statement})   # values made harmless
    text = render_chat(messages, "mistral")                                 # lm/rendering.py
    ids = read_ids(tokenizer, text, "mistral")
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from corpora.assets import Asset, fetch
from corpora.fingerprint import digest
from lm.text import clean

FOLDER = Path(__file__).with_name("prompt_files")
NEEDS, KNOWN = ("passage", "perspective"), ("question",)
"""The values that stand in a judge's prompt, and one that may."""
BERDS_FIELDS = MappingProxyType({"[Doc 1]": "passage", "[Doc 2]": "perspective"})
ROLES = ("system", "user", "assistant")

MARKERS = (
    "[INST]", "[/INST]", "<<SYS>>", "<</SYS>>", "<s>", "</s>", "<unk>", "<pad>",
    "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_CALLS]",
    "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]",
    "<|im_start|>", "<|im_end|>", "<|im_sep|>", "<|endoftext|>", "<|endofprompt|>", "<|eot_id|>", "<|eom_id|>",
    "<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|python_tag|>",
    "<|system|>", "<|user|>", "<|assistant|>", "<|end|>", "<|start|>", "<|message|>", "<|channel|>", "<|return|>",
    "<|eot|>", "<|header_start|>", "<|header_end|>", "<start_of_turn>", "<end_of_turn>", "<bos>", "<eos>",
    "<|start_of_turn_token|>", "<|end_of_turn_token|>", "<|user_token|>", "<|chatbot_token|>", "<|system_token|>",
    "<\uff5cbegin\u2581of\u2581sentence\uff5c>", "<\uff5cend\u2581of\u2581sentence\uff5c>", "<\uff5cuser\uff5c>",
    "<\uff5cassistant\uff5c>",
    "[CLS]", "[SEP]", "[PAD]", "[MASK]", "[UNK]",
)  # fmt: skip
"""Strings by which chat formats mark who speaks, and special tokens of common tokenizers; upper or lower case.

What a model's own tokenizer knows beyond these is made harmless when the text becomes tokens (lm/rendering.py).
"""


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation; ``role`` is system, user or assistant."""

    role: str
    content: str


@dataclass(frozen=True)
class Prompt:
    """Messages with fields.

    Attributes:
        prompt_id: Its name, for people.
        messages: In order; the last one is the user's.
        fields: What is replaced in them -> the name of the value (``{"{passage}": "passage"}``).
    """

    prompt_id: str
    messages: tuple[Message, ...]
    fields: Mapping[str, str]

    @cached_property
    def hash(self) -> str:
        """Changes exactly when a message or a field that stands in them does; the id does not count."""
        found = sorted({(field[0], self.fields[field[0]]) for each in self.messages for field in self._fields(each)})
        return digest([[[each.role, each.content] for each in self.messages], found])

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The values that it needs."""
        return tuple(sorted({self.fields[field[0]] for each in self.messages for field in self._fields(each)}))

    def render(self, values: Mapping[str, str], markers: Iterable[str] = ()) -> tuple[Message, ...]:
        """The messages, their fields replaced in one pass: what stands in a value is never a field.

        Args:
            values: name -> untrusted text, which is neutralised.
            markers: What else must not stand in a value (special tokens of a tokenizer).
        """
        if missing := [name for name in self.names if name not in values]:
            raise ValueError(f"prompt {self.prompt_id}: no value for {', '.join(missing)}")
        safe = {name: neutralise(clean(values[name]), markers) for name in self.names}
        return tuple(Message(each.role, self._fill(each.content, safe)) for each in self.messages)

    def _fill(self, text: str, values: Mapping[str, str]) -> str:
        return self._pattern.sub(lambda field: values[self.fields[field[0]]], text)

    def _fields(self, message: Message) -> Iterable[re.Match[str]]:
        return self._pattern.finditer(message.content)

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile("|".join(re.escape(field) for field in self.fields) or r"(?!)")


def neutralise(value: str, markers: Iterable[str] = ()) -> str:
    """The text with a blank behind the first character of whatever looks like a role marker or a special token.

    Any other text comes back as it is, byte by byte.

    Args:
        value: Untrusted text.
        markers: To be broken besides ``MARKERS``.
    """
    pattern = _pattern(frozenset(markers))
    broken = pattern.sub(lambda found: f"{found[0]} ", value)
    # A blank can only complete a marker that has one in it: there a blank without width is put as well.
    return pattern.sub(lambda found: f"{found[0]}\u200b", broken) if pattern.search(broken) else broken


@lru_cache(maxsize=64)
def _pattern(more: frozenset[str]) -> re.Pattern[str]:
    """Matches the first character of each marker; the rest is looked at only, so that markers may overlap."""
    rests: dict[str, list[str]] = {}
    for text in sorted({*MARKERS, *more}):
        if len(text) > 1:
            rests.setdefault(text[0], []).append(re.escape(text[1:]))
    return re.compile("|".join(f"{re.escape(first)}(?={'|'.join(rest)})" for first, rest in rests.items()), re.I)


def load_prompt(name: str | Path, needs: Sequence[str] = NEEDS, known: Sequence[str] = KNOWN) -> Prompt:
    """A prompt of ours by name, or anybody's from a file: YAML, text with ``<|im_start|>`` and ``<|im_end|>``, or text.

    In YAML, ``{word}`` is a field, unless ``fields`` names others.

    Args:
        name: ``support``, ``support_1shot``, ``berds``, ``berds_1shot`` (downloaded once), or a path.
        needs: The values that must stand in it.
        known: Values that may stand in it as well.

    Raises:
        ValueError: No such prompt or file, or it is not as it should be; with file and line.
    """
    text = str(name)
    if isinstance(name, Path) or "/" in text or Path(text).suffix:
        path = Path(text).expanduser()
    else:
        path = FOLDER / f"{text}.yaml"
        if not path.is_file():
            known = ", ".join(sorted(each.stem for each in FOLDER.glob("*.yaml")))
            raise ValueError(f"unknown prompt {text!r}: known: {known}; or give a path (./mine.yaml, ./mine.txt)")
    if path.suffix in (".yaml", ".yml"):
        prompt, file = _from_yaml(path)
    else:
        prompt, file = _prompt(path.stem, _messages(_read(path), path), None), path
    _check(prompt, file, needs, known)
    return prompt


def _check(prompt: Prompt, path: Path, needs: Sequence[str], known: Sequence[str]) -> None:
    roles = [each.role for each in prompt.messages]
    turns = roles[1:] if roles[:1] == ["system"] else roles
    if not turns or turns != [("user", "assistant")[i % 2] for i in range(len(turns))] or turns[-1] != "user":
        found = ", ".join(roles) or "nobody"
        raise ValueError(f"{path}: {found} speak: expected system (or not), then user and assistant in turn, user last")
    shown = {value: field for field, value in prompt.fields.items()}
    if missing := [shown.get(name, f"{{{name}}}") for name in needs if name not in prompt.names]:
        raise ValueError(f"{path}: {' and '.join(missing)} must stand in the messages")
    if unknown := [shown[name] for name in prompt.names if name not in (*needs, *known)]:
        raise ValueError(f"{path}: unknown field {', '.join(unknown)}; known: {', '.join((*needs, *known))}")


def _from_yaml(path: Path) -> tuple[Prompt, Path]:
    """The prompt and the file in which its messages stand."""
    try:
        found = yaml.safe_load(_read(path))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        raise ValueError(f"{path}{line}: no YAML: {getattr(error, 'problem', None) or 'damaged'}") from error
    if not isinstance(found, dict) or ("messages" in found) == ("asset" in found):
        raise ValueError(f"{path}: expected a mapping with either messages or asset")
    if unknown := sorted(map(str, set(found) - {"messages", "asset", "fields"})):
        raise ValueError(f"{path}: unknown {', '.join(unknown)}; known: messages, asset, fields")
    fields = found.get("fields")
    if fields is not None and not _strings(fields):
        raise ValueError(f"{path}: fields: expected what is replaced -> the name of a value")
    if "asset" in found:
        file = fetch(_asset(found["asset"], path))
        return _prompt(path.stem, _messages(_read(file), file), fields), file
    return _prompt(path.stem, _turns(found["messages"], path), fields), path


def _asset(found: Any, path: Path) -> Asset:
    size = found.get("size") if isinstance(found, dict) else None
    if not isinstance(found, dict) or not all(isinstance(found.get(key), str) for key in ("name", "url", "sha256")):
        raise ValueError(f"{path}: asset: expected name, url and sha256")
    return Asset(found["name"], (found["url"],), found["sha256"], size, source=str(path.name))


def _turns(found: Any, path: Path) -> list[Message]:
    if not isinstance(found, list) or not all(_strings(each) and set(each) == {"role", "content"} for each in found):
        raise ValueError(f"{path}: messages: expected a list of role and content")
    return [Message(each["role"], each["content"]) for each in found]


def _messages(text: str, path: Path) -> list[Message]:
    """Messages between ``<|im_start|>role`` and ``<|im_end|>``, or all of it as the user's; no blanks at their ends."""
    if "<|im_start|>" not in text and "<|im_end|>" not in text and text.strip():
        return [Message("user", text.strip())]
    messages, position = [], 0
    for found in re.finditer(r"<\|im_start\|>(\w+)\n(.*?)<\|im_end\|>", text, re.DOTALL):
        _nothing(text, position, found.start(), path)
        messages.append(Message(found[1], found[2].strip()))
        position = found.end()
    _nothing(text, position, len(text), path)
    return messages


def _nothing(text: str, start: int, stop: int, path: Path) -> None:
    between = text[start:stop]
    if between.strip():
        line = text.count("\n", 0, start + len(between) - len(between.lstrip())) + 1
        raise ValueError(f"{path}:{line}: text outside of <|im_start|>role ... <|im_end|>")


def _prompt(name: str, messages: Sequence[Message], fields: Mapping[str, str] | None) -> Prompt:
    text = "".join(each.content for each in messages)
    if fields is None and any(field in text for field in BERDS_FIELDS):
        fields = BERDS_FIELDS
    elif fields is None:
        fields = {found[0]: found[1] for found in re.finditer(r"\{(\w+)\}", text)}
    return Prompt(name, tuple(messages), MappingProxyType(dict(fields)))


def _strings(found: Any) -> bool:
    return isinstance(found, dict) and all(isinstance(each, str) and each for pair in found.items() for each in pair)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise ValueError(f"prompt {path}: there is no such file") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"prompt {path}: cannot be read as UTF-8 text: {error}") from error
