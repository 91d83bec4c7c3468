"""Yes or No in the answer of a language model that was asked for one of them; anything else is neither."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence

from evaluator.types import Judgement
from lm.chat_types import Alternatives, ChatAnswer
from lm.structured import without_thought

_WORDS = {"yes": True, "true": True, "no": False, "false": False}
_ANSWER = re.compile(
    r"""[\W_]*                                                      # **, quotes, brackets, blanks
    (?:(?:the[\s]+)?(?:final[\s]+)?(?:answer|label|verdict|response)(?:[\s]+is)?[\W_]+)?
    (?P<word>yes|no|true|false)
    (?P<rest>.*)""",
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)
_END = re.compile(
    r"""[\W_]*\Z                                                    # nothing more
    |[*_"'`)\]}]*(?:[.,;:!\n]|\s*[\u2013\u2014(]|\s-+\s)                # a stop, and then perhaps an explanation
    |[*_"'`)\]}]*\s+(?:the|this|it|because|as|since|based)\b        # an explanation without a stop""",
    re.IGNORECASE | re.VERBOSE,
)
_BOTH = re.compile(r"[\W_]*(?:or|and)?[\W_]*(?:yes|no|true|false)\b", re.IGNORECASE)
_FENCE = re.compile(r"\A```[a-zA-Z]*\s*\n(.*?)\n?```\s*\Z", re.DOTALL)


def read_judgement(answer: ChatAnswer) -> Judgement:
    """What an answer says, and how probable it is."""
    if answer.status == "refused":
        return Judgement("unparsed", None, f"refused: {answer.text}", answer.cost_usd)
    label = read_yes_no(answer.text)
    if label is None:
        return Judgement("unparsed", None, answer.text, answer.cost_usd)
    masses = _masses(answer.logprobs)
    if masses is None:
        return Judgement("ok", float(label), answer.text, answer.cost_usd)
    text = f"{answer.text.strip()!r}, P(yes)+P(no)={sum(masses):.3g}"
    return Judgement("ok", masses[0] / sum(masses), text, answer.cost_usd)


def read_yes_no(text: str) -> bool | None:
    """Whether the answer is Yes (True) or No (False); None where it is neither, or both.

    It has to begin with the word (behind markdown, quotes, ``Answer:`` or what a reasoning model thinks), and the word
    has to stand for itself: ``No one knows``, ``No doubt`` and ``Yes and no`` are no answers. ``true`` and ``false``
    are taken too, and JSON objects with one such value.
    """
    text = without_thought(text).strip()
    if fenced := _FENCE.match(text):
        text = fenced[1].strip()
    if text.startswith("{"):
        return _from_json(text)
    found = _ANSWER.match(text)
    if found is None or not _END.match(found["rest"]) or _BOTH.match(found["rest"]):
        return None
    return _WORDS[found["word"].lower()]


def _from_json(text: str) -> bool | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    fields = value.values() if isinstance(value, dict) else ()
    found = {field if isinstance(field, bool) else _WORDS.get(str(field).strip(" .").lower()) for field in fields}
    found.discard(None)
    return found.pop() if len(found) == 1 else None


def _masses(places: Sequence[Alternatives]) -> tuple[float, float] | None:
    """P(yes) and P(no) at the first place with a word; None where its likeliest word is neither."""
    for alternatives in places:
        word = _word(alternatives[0][0]) if alternatives else ""
        if word in ("yes", "no"):
            yes, no = (sum(math.exp(p) for token, p in alternatives if _word(token) == each) for each in ("yes", "no"))
            return (yes, no) if 0 < yes + no <= 1.01 else None
        if word:
            return None
    return None


def _word(token: str) -> str:
    """A token's letters and digits, in lower case: ``**Yes`` is yes."""
    return re.sub(r"[\W_\u2581\u0120]+", "", token).casefold()
