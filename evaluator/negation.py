"""Negates English statements by rule, for the probe of negated perspectives; gives up rather than guess.

Exactly one of: a negation that is there goes ("should not" -> "should"); "not" comes after the first auxiliary of the
main clause; or a verb of a short list becomes "does not" and its stem. Statements that "not" would not contradict
("some people should ...", "it may ...", "not only ...") are left alone, and so is everything that no rule fits. The
rules are this project's own; they are simple, so look at a few before building on them.
"""

from __future__ import annotations

import re


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


MODALS = _words("should must will would can could shall")
BE = _words("is are was were")
_OTHERS = _words("do does did has have")
_CONTRACTED = {"can't": "can", "won't": "will", "shan't": "shall", "cannot": "can"} | {
    f"{word}n't": word for word in (MODALS | BE | _OTHERS | {"had"}) - {"can", "will", "shall"}
}
_STEMS = _words("""
    achieve affect alleviate allow avoid boost bring build cause contribute create decrease deny depend deserve destroy
    deter diminish discourage discriminate disrupt distort distract eliminate enable encourage endanger enhance enrich
    ensure erode exacerbate exploit expose facilitate fail foster generate give help hinder hurt ignore impede impose
    improve include increase infringe inhibit interfere keep lack lead lower maintain make motivate neglect outweigh
    perpetuate pose preserve prevent produce prohibit promote protect provide punish push put raise reduce reinforce
    rely remove represent require restrict save send serve solve stifle stimulate stop strengthen suffer take teach
    threaten undermine violate weaken widen worsen
    """)
"""Verbs whose third persons are seldom nouns."""
_VERBS = {
    stem[:-1] + "ies" if re.search("[^aeiou]y$", stem) else stem + ("es" if re.search("(sh|ch)$", stem) else "s"): stem
    for stem in _STEMS
}
_REPORTS = _words("proves shows suggests indicates demonstrates means says claims")
"""A clause may follow without "that", and "not" would come into it."""
_OPENERS = _words("""
    who whom whose which that if when whenever while because although though unless where what how why since as than
    until before after whether once
    """)
"""A clause begins here: the next auxiliary is taken as that clause's own."""
_QUANTIFIERS = _words("""
    some any many most few several all every each everyone everybody everything someone something anyone often
    sometimes usually always only both either partly half much
    """)
_NEGATIVE = _words("not no never nor neither nobody none nothing hardly")
_LIMITS = _words("only just necessarily merely")
"""After "not" these deny the limit, and not what is limited."""
_SPLIT = re.compile(r"(\s+)")
_BARE = re.compile(r"^\W+|\W+$")


def negate(text: str) -> str | None:
    """The statement's negation; None where no rule applies."""
    statement = text.strip()
    if opening := re.match(r"(yes|no)\s*[,.:;]\s*(?=[^\W\d])", statement, flags=re.IGNORECASE):
        statement = statement[opening.end()].upper() + statement[opening.end() + 1 :]
    if not statement or statement.endswith("?") or re.search(r"[.!?]\s+[^\w\s]*[A-Z]|;", statement):
        return None  # a question, or several sentences
    parts = _SPLIT.split(statement)
    words = [_BARE.sub("", part).lower().replace("\u2019", "'") for part in parts[::2]]
    negations = [i for i, word in enumerate(words) if word in _NEGATIVE or word.endswith("n't") or word == "cannot"]
    if not negations:
        return _with_not(parts, words)
    return _without(parts, words, negations[0]) if len(negations) == 1 else None


def _without(parts: list[str], words: list[str], at: int) -> str | None:
    """The only negation goes, where it stands at an auxiliary."""
    if not _contradicts(words[:at]) or any(word in _OPENERS for word in words[:at]):
        return None
    if words[at] in _CONTRACTED:
        return _joined(parts, at, _CONTRACTED[words[at]])
    auxiliary = at and words[at - 1] in MODALS | BE | _OTHERS
    following = words[at + 1] if at + 1 < len(words) else ""
    if words[at] not in ("not", "never") or not auxiliary or following in _LIMITS:
        return None
    return "".join(parts[: 2 * at - 1] + parts[2 * at + 1 :])


def _with_not(parts: list[str], words: list[str]) -> str | None:
    """The main clause gets a "not"."""
    start = open_clauses = 0
    for i, word in enumerate(words[:-1]):
        if i and parts[2 * (i - 1)].endswith((",", ":")):
            start, open_clauses = i, 0
        if word in _OPENERS:
            open_clauses += 1
        has = word in ("has", "have") and re.search("(ed|been|become|made|done|led|had)$", words[i + 1]) is not None
        auxiliary = word in MODALS | BE or has
        verb = word in _VERBS and words[i + 1] not in MODALS | BE  # "the armed forces are" has none here
        if not (auxiliary or verb) or i == start or words[i - 1] == "to":
            continue
        if open_clauses:
            open_clauses -= 1
        elif not _contradicts(words[start:i]) or words[i + 1] in _LIMITS:
            return None
        elif word == "can":
            return _joined(parts, i, "cannot")
        else:
            return _joined(parts, i, f"{word} not" if auxiliary else f"does not {_VERBS[word]}")
    return None


def _contradicts(subject: list[str]) -> bool:
    """Whether "not" after these words says the opposite: "some should not" agrees with "some should"."""
    return bool(subject) and not (_QUANTIFIERS | _REPORTS | {"may", "might"}).intersection(subject)


def _joined(parts: list[str], at: int, word: str) -> str | None:
    """The text with another word at a place, its punctuation kept."""
    old = parts[2 * at]
    bare = _BARE.sub("", old)
    return "".join([*parts[: 2 * at], old.replace(bare, word, 1), *parts[2 * at + 1 :]])
