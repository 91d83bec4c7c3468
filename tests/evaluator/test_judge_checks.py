"""The conformance checks of judges: a right judge passes, and each check catches a judge that breaks it."""

import itertools
import random
from dataclasses import dataclass
from pathlib import Path

import pytest

from corpora.types import Passage
from evaluator.judges.checks import CHECKS, PAIRS, CheckError, check_judge
from evaluator.types import Judgement


class Overlap:
    """A right judge: the share of the perspective's words that the passage has. What breaks overrides a method."""

    runtime_args = ("batch_size",)

    def __init__(self, lower: bool = True, batch_size: int = 4) -> None:
        self.lower = lower
        self.batch_size = batch_size

    def render(self, pair):
        return repr(self.texts(pair))

    def texts(self, pair):
        texts = (pair.perspective.text, pair.passage.text)
        return tuple(text.lower() for text in texts) if self.lower else texts

    def judge(self, pairs):
        for start in range(0, len(pairs), self.batch_size):
            yield from self.batch(pairs, range(start, min(start + self.batch_size, len(pairs))))

    def batch(self, pairs, positions):
        for i in reversed(positions):
            yield i, self.answer(pairs[i], i, pairs)

    def answer(self, pair, position, pairs):
        probability = self.probability(pair)
        return Judgement("ok", probability, "yes" if probability >= 0.5 else "no", 0.0)

    def probability(self, pair):
        perspective, passage = (text.split() for text in self.texts(pair))
        return sum(word in passage for word in perspective) / len(perspective) if perspective else 0.0


@dataclass(frozen=True)
class Named(Overlap):
    """Has a fingerprint of its own, cannot read most answers, and returns an iterator that is no generator."""

    lower: bool = False
    batch_size: int = 7

    @property
    def fingerprint(self):
        return f"named, lower={self.lower}"

    def answer(self, pair, position, pairs):
        return super().answer(pair, position, pairs) if len(pair.passage.text) > 60 else Judgement("unparsed", None)

    def judge(self, pairs):
        return zip(range(len(pairs)), (self.answer(pair, 0, pairs) for pair in pairs), strict=True)


@pytest.mark.parametrize("judge", [Overlap, lambda: Overlap(False, 1), Overlap(batch_size=500), Named, Named(True)])
def test_a_right_judge_passes(judge):
    check_judge(judge)


def test_a_second_judge_with_another_fingerprint_passes():
    check_judge(Overlap, other=lambda: Overlap(lower=False))
    check_judge(Named, other=lambda: Named(lower=True))
    check_judge(Overlap, other=Named)


class Renames(Overlap):
    def __init__(self, lower: bool = True) -> None:
        self._lower = lower


class Copies(Overlap):
    def __init__(self, words: tuple = ("a",)) -> None:
        super().__init__()
        self.words = [*words, "b"]


class Opens(Overlap):
    def __init__(self) -> None:
        super().__init__()
        Path(__file__).read_text()


class Method(Overlap):
    def fingerprint(self):
        return "method"


class Address(Overlap):
    @property
    def fingerprint(self):
        return str(id(self))


class Loads(Overlap):
    """Its fingerprint is complete only after loading."""

    revision = "unknown"

    @property
    def fingerprint(self):
        return self.revision

    def judge(self, pairs):
        self.revision = "abc"
        return super().judge(pairs)


class Lambda(Overlap):
    def __init__(self, key=len) -> None:
        super().__init__()
        self.key = key


class Tokens(Overlap):
    def render(self, pair):
        return self.texts(pair)


class Salted(Overlap):
    def render(self, pair):
        return f"{random.random()} {super().render(pair)}"


class Numbered(Overlap):
    """Renders a number that each judge draws for itself."""

    numbers = itertools.count()

    def __init__(self) -> None:
        super().__init__()
        self._number = next(self.numbers)

    def render(self, pair):
        return f"{self._number} {super().render(pair)}"


class ById(Overlap):
    def render(self, pair):
        return f"{pair.passage.passage_id}: {super().render(pair)}"


class ByPerspectiveId(Overlap):
    def render(self, pair):
        return f"{pair.perspective.perspective_id}: {super().render(pair)}"


class BySplit(Overlap):
    def render(self, pair):
        return f"{pair.question.split}: {super().render(pair)}"


class ForgetsPassage(Overlap):
    def render(self, pair):
        return pair.perspective.text


class ForgetsPerspective(Overlap):
    def render(self, pair):
        return pair.passage.text


class Replaces(Overlap):
    def render(self, pair):
        text = "Claim: {perspective} Text: {passage}".replace("{passage}", pair.passage.text)
        return text.replace("{perspective}", pair.perspective.text)


class ReplacesLast(Overlap):
    def render(self, pair):
        text = "Claim: [claim] Text: [text]".replace("[claim]", pair.perspective.text)
        return text.replace("[text]", pair.passage.text)


class Formats(Overlap):
    def render(self, pair):
        return f"Claim: {pair.perspective.text} Text: {{passage}}".format(passage=pair.passage.text)


class Percent(Overlap):
    def render(self, pair):
        return ("Text: " + pair.passage.text + " Claim: %s") % pair.perspective.text


class Bare(Overlap):
    def batch(self, pairs, positions):
        return (judgement for _, judgement in super().batch(pairs, positions))


class Beyond(Overlap):
    def batch(self, pairs, positions):
        return ((i + 1, judgement) for i, judgement in super().batch(pairs, positions))


class Twice(Overlap):
    def batch(self, pairs, positions):
        return (answer for answer in super().batch(pairs, positions) for _ in range(2))


class Unequal(Overlap):
    """Answers equal inputs once."""

    def judge(self, pairs):
        first = {self.render(pair): i for i, pair in reversed(list(enumerate(pairs)))}
        return (answer for answer in super().judge(pairs) if answer[0] in first.values())


class Empty(Overlap):
    def judge(self, pairs):
        longest = max(len(pair.passage.text) for pair in pairs)
        return super().judge(pairs) if longest else iter(())


class EmptyAnswers(Overlap):
    def judge(self, pairs):
        return super().judge(pairs or PAIRS[:1])


def answers(name, judgement):
    return type(name, (Overlap,), {"answer": lambda self, pair, position, pairs: judgement})


Plain = answers("Plain", 0.7)
Status = answers("Status", Judgement("maybe", 0.5))
Percents = answers("Percents", Judgement("ok", 70.0))
Negative = answers("Negative", Judgement("ok", -0.1))
NotANumber = answers("NotANumber", Judgement("ok", float("nan")))
Missing = answers("Missing", Judgement("ok", None))
Zero = answers("Zero", Judgement("unparsed", 0.0))
Text = answers("Text", Judgement("ok", "0.5"))
NoText = answers("NoText", Judgement("ok", 0.5, None))
Refund = answers("Refund", Judgement("ok", 0.5, "", -1.0))


class ReadsTitle(Overlap):
    """Reads a title that it does not render."""

    def probability(self, pair):
        return super().probability(pair) / (1 + len(pair.passage.title))


class ReadsIds(Overlap):
    def probability(self, pair):
        return super().probability(pair) * (0.5 if pair.passage.passage_id == "other" else 1)


class ReadsStance(Overlap):
    def probability(self, pair):
        return super().probability(pair) * (0.5 if pair.perspective.stance == "opposing" else 1)


class Padding(Overlap):
    """Longer neighbours change the answer, as careless padding does."""

    def answer(self, pair, position, pairs):
        longest = max(len(each.passage.text) for each in pairs) or 1
        return Judgement("ok", self.probability(pair) * len(pair.passage.text) / longest)


class Position(Overlap):
    def answer(self, pair, position, pairs):
        return Judgement("ok", self.probability(pair) / (1 + position))


class Misaligned(Overlap):
    """Sorts by length, and forgets to sort back."""

    def judge(self, pairs):
        return super().judge(sorted(pairs, key=lambda pair: len(pair.passage.text)))


class GivesUp(Overlap):
    """Cannot read its own answers in a batch."""

    def answer(self, pair, position, pairs):
        return super().answer(pair, position, pairs) if len(pairs) == 1 else Judgement("unparsed", None)


class Drawn(Overlap):
    """Each judge draws weights of its own, as an untrained layer does."""

    drawn = itertools.count()

    def __init__(self) -> None:
        super().__init__()
        self._weight = 1 / (2 + next(self.drawn))

    def probability(self, pair):
        return super().probability(pair) * self._weight


class Counts(Overlap):
    """Wears out: answers otherwise the fourth time that it sees all pairs."""

    def __init__(self) -> None:
        super().__init__()
        self._calls = 0

    def judge(self, pairs):
        self._calls += tuple(pairs) == PAIRS
        return super().judge(pairs)

    def probability(self, pair):
        return super().probability(pair) / (2 if self._calls > 3 else 1)


class Latin(Overlap):
    def probability(self, pair):
        pair.passage.text.encode("latin-1")
        return super().probability(pair)


class Divides(Overlap):
    def probability(self, pair):
        return min(1.0, super().probability(pair) / len(pair.passage.text.split()))


class Short(Overlap):
    def probability(self, pair):
        if len(pair.passage.text) > 10_000:
            raise ValueError("the input has 20004 tokens,\nthe model takes 4096")
        return super().probability(pair)


class Roles(Overlap):
    """Refuses, as some chat templates do."""

    def render(self, pair):
        if "[/INST]" in pair.passage.text:
            raise ValueError("role markers in the input")
        return super().render(pair)


class Silent(Overlap):
    """Leaves out what it cannot read."""

    def batch(self, pairs, positions):
        return super().batch(pairs, [i for i in positions if pairs[i].perspective.text.strip()])


class Listed(Overlap):
    def judge(self, pairs):
        return list(super().judge(pairs))


class Eager(Overlap):
    def judge(self, pairs):
        yield from list(super().judge(pairs))


class Remembers(Overlap):
    """What one caller did not fetch, the next one gets."""

    def __init__(self) -> None:
        super().__init__()
        self._open = []

    def judge(self, pairs):
        self._open.extend((i, self.answer(pair, i, pairs)) for i, pair in enumerate(pairs[:8]))
        for i in range(len(pairs)):
            yield self._open.pop(0) if self._open else (i, self.answer(pairs[i], i, pairs))


BROKEN = [
    (Renames, "check_constructor", "are not kept under their own names: lower"),
    (Copies, "check_constructor", "keep what was given"),
    (Opens, "check_constructor", "the constructor does open"),
    (Method, "check_fingerprint", "its fingerprint is a method"),
    (Address, "check_fingerprint", "equal arguments give the fingerprints"),
    (Loads, "check_fingerprint", "judging changes the fingerprint"),
    (Lambda, "check_fingerprint", "define a property 'fingerprint'"),
    (Tokens, "check_render", "render returns a tuple"),
    (Salted, "check_render", "a second call renders"),
    (Numbered, "check_render", "a second judge renders"),
    (ById, "check_render", "other ids"),
    (ByPerspectiveId, "check_render", "other ids"),
    (BySplit, "check_render", "other ids"),
    (ForgetsPassage, "check_distinct", "two passages are rendered alike"),
    (ForgetsPerspective, "check_distinct", "two perspectives are rendered alike"),
    (Replaces, "check_distinct", "'{perspective}' in a passage is replaced"),
    (ReplacesLast, "check_distinct", "'[text]' in a perspective is replaced"),
    (Formats, "check_distinct", "it raises KeyError"),
    (Percent, "check_hostile", "raises"),
    (Bare, "check_fingerprint", "expected (position, Judgement)"),
    (Beyond, "check_fingerprint", "it answers position 1 of 1 pairs"),
    (Twice, "check_fingerprint", "it answers position 0 twice"),
    (Unequal, "check_answers", "it leaves 1 of 6 pairs unanswered, first position 5"),
    (Empty, "check_answers", "it raises ValueError"),
    (EmptyAnswers, "check_answers", "no pairs got answers"),
    (Plain, "check_fingerprint", "0.7, expected a Judgement"),
    (Status, "check_fingerprint", "status 'maybe'"),
    (Percents, "check_fingerprint", "probability 70.0"),
    (Negative, "check_fingerprint", "probability -0.1"),
    (NotANumber, "check_fingerprint", "probability nan"),
    (Missing, "check_fingerprint", "it is None exactly when unparsed"),
    (Zero, "check_fingerprint", "it is None exactly when unparsed"),
    (Text, "check_fingerprint", "probability '0.5'"),
    (NoText, "check_fingerprint", "answer None"),
    (Refund, "check_fingerprint", "cost_usd -1.0"),
    (ReadsTitle, "check_complete", "other title, not rendered"),
    (ReadsIds, "check_complete", "other ids, not rendered"),
    (ReadsStance, "check_complete", "other stance, not rendered"),
    (Padding, "check_batch", "all at once and one by one"),
    (Position, "check_batch", "all at once and one by one"),
    (Misaligned, "check_batch", "all at once and one by one"),
    (GivesUp, "check_batch", "gets unparsed None and ok "),
    (Drawn, "check_repeatable", "a second judge"),
    (Counts, "check_repeatable", "judged again"),
    (Latin, "check_hostile", "raises UnicodeEncodeError"),
    (Divides, "check_hostile", "passage '' raises ZeroDivisionError"),
    (Short, "check_hostile", "(100000 characters)' raises ValueError: the input has 20004 tokens, the model"),
    (Roles, "check_hostile", "raises ValueError: role markers"),
    (Silent, "check_hostile", "perspective '': it leaves 1 of 1 pairs unanswered"),
    (Listed, "check_stream", "judge returns a list, expected an iterator"),
    (Eager, "check_stream", "all of 1000 answers are made before the first"),
    (Remembers, "check_stream", "it answers position 1 of 1 pairs"),
]


@pytest.mark.parametrize("judge, check, message", BROKEN, ids=lambda value: getattr(value, "__name__", None))
def test_a_broken_judge_is_caught(judge, check, message):
    with pytest.raises(CheckError) as caught:
        check_judge(judge)
    text = str(caught.value)
    assert text.startswith(f"{judge.__name__} fails {check}: ")
    assert message in text
    assert "\n" not in text


def test_every_check_has_a_judge_that_it_catches():
    assert {check for _, check, _ in BROKEN} == {check.__name__ for check in CHECKS}


def test_a_fingerprint_that_leaves_out_an_argument_is_caught():
    class Forgets(Overlap):
        fingerprint = "always the same"

    with pytest.raises(CheckError, match=r"check_fingerprint: .*'lower': True.*'lower': False.*would be mixed"):
        check_judge(Forgets, other=lambda: Forgets(lower=False))
    with pytest.raises(CheckError, match="differs in runtime_args only"):
        check_judge(Overlap, other=lambda: Overlap(batch_size=9))


def test_tolerance_is_for_probabilities_and_not_for_labels():
    class Near(Overlap):
        """Alone 0.02 lower than in company."""

        level = 0.8

        def answer(self, pair, position, pairs):
            return Judgement("ok", self.level - 0.02 * (len(pairs) == 1))

    with pytest.raises(CheckError, match=r"check_batch: all at once and one by one: .* gets ok 0.8 and ok 0.78"):
        check_judge(Near)
    check_judge(Near, tolerance=0.03)
    Near.level = 0.51  # alone 0.49: the label at 0.5 is another one
    with pytest.raises(CheckError, match=r"gets ok 0.51 and ok 0.49"):
        check_judge(Near, tolerance=0.03)


def test_a_judge_that_cannot_be_made_is_reported_in_one_line():
    class Needs(Overlap):
        def __init__(self, model: str) -> None:
            self.model = model

    with pytest.raises(CheckError, match=r"Needs fails check_constructor: it raises TypeError: .*'model'"):
        check_judge(Needs)


def test_models_are_loaded_at_most_twice():
    loaded = []

    class Heavy(Overlap):
        def judge(self, pairs):
            if self not in loaded:
                loaded.append(self)
            return super().judge(pairs)

    check_judge(Heavy)
    assert len(loaded) == 2


def test_pairs_do_not_differ_by_chance():
    assert len({pair.passage.text for pair in PAIRS}) == len(PAIRS) - 1
    assert all(isinstance(pair.passage, Passage) for pair in PAIRS)
