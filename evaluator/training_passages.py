"""Passages as a web search finds them, made from argumentative texts: what a detector has to be trained on.

A retrieved passage is a window of a page: a few sentences about the subject, often neutral, that begin and end
anywhere, with a title; debate collections have tidy arguments instead. A detector that only knows these takes every
mention of the subject for support. So arguments are put among other sentences here: of other texts, and neutral ones
about the claim (``NEUTRAL``; written for this project) that repeat its words, or quote it, without taking a side.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

from evaluator.negation import negate

WORDS = 110
"""Longest passage, in words: the corpora of BERDS are cut at 100 words."""
NEUTRAL = (
    "The question whether {claim} has been discussed for years.",
    "Opinions differ on whether {claim}.",
    "This article gives an overview of the debate about whether {claim}.",
    "A survey asked 1,200 people whether {claim}; the results will be published next month.",
    "{Topic} is the subject of a new series in this magazine.",
    "In this lesson, students find out what is meant by the statement that {claim}.",
    "The committee will hear experts on both sides before it reports on whether {claim}.",
    "Supporters and critics met on Tuesday to discuss whether {claim}.",
    "There is no agreement among researchers on whether {claim}.",
    "For more about {topic}, see the related pages below.",
    "Read our guide to {topic} and decide for yourself.",
    "What do you think? Leave a comment and tell us whether you believe that {claim}.",
    "The history of {topic} goes back several decades.",
    "Some believe that {claim}, while others disagree.",
    "The essay should be two pages long and answer whether {claim}.",
    "The term is used in different ways when people talk about {topic}.",
    "The minister was asked whether {claim} and declined to comment.",
    "Laws and customs concerning {topic} vary from country to country.",
    "He has written several books on {topic} and teaches at a university.",
    "A debate on the motion that {claim} takes place in the main hall at seven.",
    "Figures on {topic} are collected every year by the statistical office.",
    "This page was last updated in March and lists sources on {topic}.",
    "It is not yet clear what the effects of a decision on {topic} would be.",
    "Critics say otherwise, and those in favour say that {claim}; the report takes no side.",
)
BOILERPLATE = (
    "Share this page with your friends.", "Posted in Opinion, Society. 14 comments.", "Sign up for our newsletter.",
    "Related articles and further reading.", "All rights reserved.", "Click here to read the full story.",
    "By our staff writer, updated at 10:42.", "Advertisement. Scroll to continue reading.",
    "What is the best answer to this question?", "Table of contents: background, arguments, sources.",
)  # fmt: skip
TITLES = (
    "{Claim}",
    "{Topic}: pros and cons",
    "{Topic} - overview",
    "Debate: {claim}?",
    "{Topic} | Questions and answers",
)
_SWAPS = (
    ("illegal", "legal"), ("legal", "illegal"), ("banned", "allowed"), ("ban", "allow"), ("abolish", "keep"),
    ("abandon", "keep"), ("scrapped", "kept"), ("abolished", "kept"), ("prohibit", "allow"), ("legalize", "ban"),
    ("increased", "reduced"), ("reduced", "increased"), ("lowered", "raised"), ("raised", "lowered"),
    ("good", "bad"), ("beneficial", "harmful"), ("justified", "unjustified"), ("mandatory", "voluntary"),
    ("compulsory", "voluntary"), ("allowed", "forbidden"), ("encouraged", "discouraged"), ("dropped", "kept"),
    ("positive", "negative"), ("criminal offence", "right"), ("subsidize", "stop subsidizing"), ("close", "keep open"),
    ("adopt", "reject"), ("end", "keep"), ("introduce", "not introduce"), ("better", "worse"), ("more", "less"),
)  # fmt: skip
_LEAD = re.compile(
    r"^(we should|the (us|usa|eu|united states|government|world)|governments?|people|britain|should)\b|"
    r"\b(should|must|ought|can|cannot|will|would|is|are|was|were|has|have|does|do|be|not|to|we|it|there)\b",
    re.IGNORECASE,
)


def counterclaim(claim: str, rng: random.Random) -> str | None:
    """A statement of the other side: a word's opposite, or a negation by rule; None where there is neither."""
    words = [pair for pair in _SWAPS if re.search(rf"\b{pair[0]}\b", claim, re.IGNORECASE)]
    negated = negate(claim)
    if words and (negated is None or rng.random() < 0.4):
        old, new = words[0]
        return re.sub(rf"\b{old}\b", new, claim, count=1, flags=re.IGNORECASE)
    return negated


def subject(claim: str) -> str:
    """What a claim is about, roughly: the claim without its verbs of demand."""
    found = " ".join(_LEAD.sub(" ", claim.rstrip(".!?")).split())
    return found[:1].lower() + found[1:] if found[1:2].islower() else found


def sentences(text: str) -> list[str]:
    """The sentences of a text; a piece of more than forty words is cut there."""
    found = []
    for each in re.split(r"(?<=[.!?])\s+(?=[^a-z])", " ".join(text.split())):
        words = each.split()
        found += [" ".join(words[i : i + 40]) for i in range(0, len(words), 40)]
    return found


def neutral_sentences(claim: str, count: int, rng: random.Random) -> list[str]:
    """Different sentences about a claim that take no side."""
    topic, said = subject(claim) or claim, _lower(claim.rstrip(".!?"))
    return [
        each.format(claim=said, topic=topic, Topic=topic[:1].upper() + topic[1:])
        for each in rng.sample(NEUTRAL, min(count, len(NEUTRAL)))
    ]


def page(core: str, claim: str, fillers: Sequence[str], rng: random.Random) -> tuple[str, str]:
    """(passage, title) with the whole core somewhere in it, among sentences of ``fillers`` and neutral ones.

    The same number of them stands there whether the core supports anything or is empty, so they give nothing away.
    """
    pieces = neutral_sentences(claim, rng.choice((0, 1, 1, 2, 3)), rng)
    for filler in fillers:
        its = sentences(filler)
        start = rng.randrange(len(its))
        pieces += its[start : start + rng.choice((1, 2, 3))]
    if rng.random() < 0.3:
        pieces.append(rng.choice(BOILERPLATE))
    rng.shuffle(pieces)
    core = " ".join(core.split()[:WORDS])
    room = WORDS - len(core.split())
    before: list[str] = []
    after: list[str] = []
    for piece in pieces:
        size = len(piece.split())
        if size <= room:
            (before if rng.random() < 0.5 else after).append(piece)
            room -= size
    text = " ".join([*before, core, *after]).strip() or neutral_sentences(claim, 1, rng)[0]
    if before and rng.random() < 0.5:  # a window begins in the middle of a sentence
        cut = rng.randrange(min(8, len(before[0].split())))
        text = " ".join(text.split()[cut:])
    return text, title(claim, rng)


def title(claim: str, rng: random.Random) -> str:
    """A page's title, or none."""
    if rng.random() < 0.6:
        return ""
    topic, said = subject(claim) or claim, claim.rstrip(".!?")
    form = rng.choice(TITLES)
    return form.format(claim=_lower(said), Claim=said, topic=topic, Topic=topic[:1].upper() + topic[1:])


def _lower(claim: str) -> str:
    first = claim.split(" ", 1)[0]
    return claim if first.isupper() or not first[1:].islower() else claim[:1].lower() + claim[1:]
