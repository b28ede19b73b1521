"""The receipt of a compaction: what of the replaced messages the next request still has, found without a model.

Examined are open todos, sentences of people, and identifiers, figures and error texts in texts and calls. Each is
looked up in everything that the next request would show: the summary, the messages that stay, and what the compiler
keeps besides. Facts in results and long arguments are counted apart: a listing has thousands, and no summary keeps
them. What looks like a credential is never listed. The receipt is stored with the summary, and is deleted with it.
"""

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct

from contextc._credential_mask import mask_secrets
from contextc._json import JSON
from contextc.compiler.facts import iter_texts, list_facts, without_credentials
from contextc.messages import Message

MIN_SCORE = 0.8
"""A summary that keeps a smaller share of the facts is asked for again, with those that it lacks."""
MAX_LISTED, MAX_DESCRIBED = 50, 12
MAX_ARGUMENT = 200
MIN_SENTENCE, MAX_SENTENCE, MAX_SENTENCES = 6, 200, 400
_TAG = re.compile(r"</?[a-z-]+>")
_SENTENCE_END = re.compile(r"\n+|(?<=[.!?])\s+|(?<=[\u3002\uff01\uff1f])")


class Receipt(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The part that a compaction has kept: `kept` of `facts` facts and open todos, `said_kept` of `said` sentences of
    people, and `results_kept` of `results` facts in results.

    `lost` is what the next request does not have, the most important first, at most 50.
    """

    facts: int
    kept: int
    said: int = 0
    said_kept: int = 0
    results: int = 0
    results_kept: int = 0
    lost: tuple[str, ...] = ()

    @property
    def missing(self) -> int:
        """The number of facts, todos and sentences that the next request does not have."""
        return self.lost_facts + self.said - self.said_kept

    @property
    def score(self) -> float:
        """The share of the facts, todos and sentences that the next request still has."""
        total = self.facts + self.said
        return round(1 - self.missing / total, 3) if total else 1.0

    @property
    def lost_facts(self) -> int:
        """The number of facts and todos that the next request does not have."""
        return self.facts - self.kept

    @property
    def lacks_facts(self) -> bool:
        """True if so many facts and todos are missing that the summary is worth another attempt."""
        return self.kept < self.facts * MIN_SCORE


class Points(Struct, frozen=True, kw_only=True):
    """The points that must not be lost of the messages that a summary replaces."""

    todos: tuple[str, ...]
    sentences: tuple[str, ...]
    facts: tuple[str, ...]
    results: tuple[str, ...]


def find_points(messages: Sequence[Message], previous: str | None, todos: Iterable[str]) -> Points:
    """Find the points in messages, and in the summary before them. The latest come first."""
    texts, results, sentences = list[str](), list[str](), list[str]()
    for message in reversed(messages):
        texts.append(message.text)
        results += [result.text for result in message.tool_results]
        if message.role == "user":
            sentences += _sentences(message.text)
        for argument in [text for call in message.tool_calls for text in iter_texts(call.arguments)]:
            (texts if len(argument) <= MAX_ARGUMENT else results).append(argument)
    texts.append(_TAG.sub(" ", previous or ""))
    facts = dict.fromkeys([fact for text in texts for fact in list_facts(text)])
    return Points(
        todos=tuple([_one_line(each) for each in todos]),
        sentences=tuple(dict.fromkeys(sentences))[:MAX_SENTENCES],
        facts=tuple(facts),
        results=tuple({fact: None for text in results for fact in list_facts(text) if fact not in facts}),
    )


def examine(points: Points, shown: JSON) -> Receipt:
    """Return which of the points are in the texts of a request, at any depth of a JSON value."""
    texts = list(iter_texts(shown))
    facts = {fact for text in texts for fact in list_facts(text)}
    whole = _one_line(" ".join(texts)) if points.todos or points.sentences else ""
    unsaid = [each for each in points.sentences if each not in whole]
    unknown = [fact for fact in points.facts if fact not in facts]
    missing = without_credentials(unknown)
    lost = [*(todo for todo in points.todos if todo not in whole), *missing]
    from_results = [fact for fact in points.results if fact not in facts]
    listed = [text for text in [*lost, *unsaid, *from_results][: 2 * MAX_LISTED] if mask_secrets(text) == text]
    total = len(points.todos) + len(points.facts) - (len(unknown) - len(missing))
    return Receipt(
        facts=total,
        kept=total - len(lost),
        said=len(points.sentences),
        said_kept=len(points.sentences) - len(unsaid),
        results=len(points.results),
        results_kept=len(points.results) - len(from_results),
        lost=tuple(listed[:MAX_LISTED]),
    )


def describe_receipt(receipt: Receipt) -> str:
    """Return a receipt as text: what was kept, and what was lost."""
    said = f", {receipt.said_kept:,} of {receipt.said:,} sentences of people" if receipt.said else ""
    results = f", {receipt.results_kept:,} of {receipt.results:,} facts in results" if receipt.results else ""
    lost = f"; lost: {', '.join(receipt.lost[:MAX_DESCRIBED])}" if receipt.lost else ""
    return f"keeps {receipt.kept:,} of {receipt.facts:,} facts{said}{results}{lost}"


def _sentences(text: str) -> list[str]:
    found = [_one_line(each)[:MAX_SENTENCE] for each in _SENTENCE_END.split(text)]
    return [each for each in found if len(each) >= MIN_SENTENCE]


def _one_line(text: str) -> str:
    return " ".join(text.split())
