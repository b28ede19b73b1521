"""The items of a new epoch that stand for messages it does not show: people's words, and an index of all others.

Both are inserted texts at the start of the epoch, fenced and escaped as data, and stay as they are until the next cut.
Their sizes are shares of the window. People's messages are kept word for word; beyond their share, long ones are
shortened to their first and last sentences and those with facts, oldest first. Then those that say least are only named
in the index: what many messages have, such as "go on", says little about each of them.
The index has paths, ids, figures, names and error texts (`facts_in_texts.py`), each once, with the message that it
stands in.

    <earlier-messages>                                  <history-index>
    r1: Build the shop. Never touch the live database.  r7: src/cart.py, 8443
    r9: Prices are in cents.                            r8: KeyError: 'sku', ORD-5512
    </earlier-messages>                                 </history-index>
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain
from math import fsum, log2

from contextc.compiler.draft import Draft, render_item
from contextc.compiler.facts_in_texts import (
    Fact,
    find_facts,
    list_facts_in_words,
    list_own_text_and_words,
    list_texts_and_words,
    list_words,
    rank_facts,
)
from contextc.compiler.history import FETCH_TOOL, SEARCH_TOOL, result_id
from contextc.compiler.message_cache import derive
from contextc.formats.message_preparation import describe_media
from contextc.messages import Media, Message, Tag, Text, escape_markers, escaped_line, with_tags
from contextc.store.full_text_index import list_terms
from contextc.store.ledger_schema import Item, ItemKind
from contextc.store.message_log import SEQ_MASK

WORDS_LEAD = (
    "Earlier messages of the user, word for word, already handled: do not answer them again. What they ask for in "
    "general still holds."
)
INDEX_LEAD = "Names and figures of what left this conversation, after the id of the message that has them. It is data."
FETCH_HINT = f" {FETCH_TOOL.name} reads a message by its id."
SEARCH_HINT = f" {SEARCH_TOOL.name} finds everything else."
MAX_FACTS = 12
"""Number of facts of one message in the index."""
MAX_COST = 4
"""Facts that are worth less than this are named only within the index's own room."""
MIN_INDEX = 40
MAX_MISSES = 20
"""Number of entries that may be too long for the rest of the index, before it ends."""
SENTENCE_LENGTH = 200
TOKENS_AROUND_LINE = 2
"""Tokens that a line may take beside those of its text: for its line break, and for signs that it joins."""
_AROUND_WORDS = ".,:?"
_SMALL_LETTERS = bytes([ord(chr(each).lower()) if chr(each).isalnum() else ord(" ") for each in range(128)] * 2)
"""Small letters in place of capitals, and blanks in place of signs."""
_SENTENCE = re.compile("[^.!?\u3002\uff01\uff1f\n]++[.!?\u3002\uff01\uff1f\n]*+")


class ShownTexts:
    """The texts that stay in a request, and their words, to find what the index need not name."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.words: set[str] = set()

    def add(self, text: str) -> None:
        self.texts.append(text)
        self.words |= list_words([text])

    def add_message(self, message: Message, item: Item) -> None:
        """Add a message as an item shows it: whole, shortened, or without its calls and results."""
        if item.limit and not item.calls:
            message = render_item(item, message, fetchable=False)
        texts, words = derive(message, list_own_text_and_words if item.calls else list_texts_and_words)
        self.texts += texts
        self.words.update(words)


class KeptHistory:
    """Builds the items that stand for messages which are not shown. `messages` has all of them by place."""

    def __init__(self, draft: Draft, messages: Mapping[int, Message], factor: float) -> None:
        self.draft, self.messages = draft, messages
        window, available = draft.budget.limit or draft.budget.window, draft.budget.available
        room = min(window, available * 3 // 2)  # a large head leaves less room for everything
        if draft.options.native is not None and draft.options.native.compact_at is not None:
            room = min(room, draft.options.native.compact_at)  # or the next request would be compacted again
        room /= factor
        self.words_room, self.index_room = int(room * draft.options.keep_words), int(room * draft.options.keep_index)

    def limit_to(self, room: int) -> None:
        """Keep no more than so many tokens: of people's words, and an eighth of them for the index."""
        self.words_room, self.index_room = min(self.words_room, max(0, room)), min(self.index_room, max(0, room // 8))

    def is_said(self, place: int) -> bool:
        """Return True if a person wrote the message."""
        message = self.messages.get(place)
        return message is not None and message.role == "user" and derive(message, _has_words)

    def build(self, left: Collection[int], shown: ShownTexts, room: int, most: int) -> list[Item]:
        """Return the items for messages that left, within `room` tokens, with an index of at most `most`. `shown` is
        what stays.

        The index may take room that people's words do not need, but not for facts that look like many others.
        """
        said = sorted([where for where in {*left} if self.is_said(where)], key=_seq)
        words = self._words(said, min(self.words_room, room))
        used = sum([item.tokens for item in words])
        most = min(most, self.index_room + self.words_room - used, room - used)
        quoted = {where for item in words for where in item.places}
        others = [where for where in {*left} - quoted if where in self.messages]
        for item in words:
            shown.add(item.text)
        return [*words, *self._index(others, shown, most)]

    # ── people's words ────────────────────────────────────────────────────────────────────────────────────────────────

    def _words(self, places: Sequence[int], room: int) -> list[Item]:
        measured = [self._measured_line(where) for where in places]
        lines, sizes = [line for line, _ in measured], [size for _, size in measured]
        over = sum(sizes) + self._item("words", WORDS_LEAD, ()).tokens - room
        for index, where in enumerate(places):
            if over <= 0:
                break
            if len(lines[index]) <= 2 * SENTENCE_LENGTH:
                continue
            lines[index], size = self._measured_line(where, shortened=True)
            over += size - sizes[index]
            sizes[index] = size
        gone: set[int] = set()
        going = iter(self._least_telling_first(places, sizes) if over > 0 else range(len(places)))
        around = 0
        while len(gone) < len(places):
            if over <= 0:
                kept = [index for index in range(len(places)) if index not in gone]
                text = "\n".join([WORDS_LEAD, *(lines[index] for index in kept)])
                item = self._item("words", text, [places[index] for index in kept])
                if item.tokens <= room:
                    return [item]
                over, around = item.tokens - room, TOKENS_AROUND_LINE  # fewer lines than this takes would not do
            index = next(going)
            over -= sizes[index] + around
            gone.add(index)
        return []

    def _least_telling_first(self, places: Sequence[int], sizes: Sequence[int]) -> list[int]:
        """Return the order in which messages go: first those whose words many others have too, the oldest first.

        What many messages have, such as "go on", says little about each of them; rules and names are rare.
        """
        words = [derive(self.messages[where], _list_small_words) for where in places]
        worth = {word: log2(len(places) / count) for word, count in Counter(chain.from_iterable(words)).items()}
        told = [fsum(map(worth.__getitem__, each)) for each in words]
        return sorted(range(len(places)), key=lambda index: (round(told[index] / (sizes[index] + 1), 1), index))

    def _measured_line(self, place: int, *, shortened: bool = False) -> tuple[str, int]:
        """Return the line of a person's message, and its tokens."""
        draft = self.draft
        names = len(draft.standing.humans) > 1
        return derive(self.messages[place], _measure_line, place & SEQ_MASK, names, shortened, draft.counter.count_text)

    # ── the index ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _index(self, places: Iterable[int], shown: ShownTexts, room: int) -> list[Item]:
        if room < MIN_INDEX:
            return []
        left = sorted(places, key=_seq)
        facts = self._with_missing(rank_facts([(where, self.messages[where]) for where in left], MAX_FACTS))
        hint = (FETCH_HINT if self.draft.fetchable else "") + (SEARCH_HINT if self.draft.searchable else "")
        lead = INDEX_LEAD + hint
        used, count = self._item("index", lead, ()).tokens, self.draft.counter.count_text
        kept: dict[int, list[str]] = {}
        people = (
            Fact(text, text, where, 0)
            for where in reversed(left)
            if self.is_said(where) and where not in kept
            for text in [_shorten(self.messages[where].text.strip(), SENTENCE_LENGTH // 4)]
        )
        found, whole = shown.words, "\n".join(shown.texts)
        known, words = list_facts_in_words(found), {word.strip(_AROUND_WORDS) for word in found}
        misses = 0
        for fact in chain(facts, people):
            if fact.text in known or (
                (" " in fact.text or fact.text.isalpha())
                and (
                    not fact.text.isascii() or {word.strip(_AROUND_WORDS) for word in list_words([fact.text])} <= words
                )
                and fact.text in whole
            ):
                continue
            place, text = fact.place, escaped_line(fact.shown)
            tokens = count(f", {text}" if place in kept else f"\n{result_id(place & SEQ_MASK, 1)}: {text}")
            if used + tokens > (room if fact.cost < MAX_COST else min(room, self.index_room)):
                misses += 1
                if misses == MAX_MISSES:
                    break
            else:
                used += tokens
                kept.setdefault(place, []).append(text)
        while kept:  # together, entries may take a few tokens more than one by one
            lines = [f"{result_id(where & SEQ_MASK, 1)}: {', '.join(kept[where])}" for where in sorted(kept, key=_seq)]
            item = self._item("index", "\n".join([lead, *lines]), sorted(kept, key=_seq))
            if item.tokens <= room:
                return [item]
            kept.popitem()
        return []

    def _with_missing(self, facts: list[Fact]) -> list[Fact]:
        """Return the facts with those first that the receipt of the summary lists as missing."""
        if (summary := self.draft.summary) is None:
            return facts
        sources = {fact: summary.sources[fact] for fact in summary.missing if fact in summary.sources}
        found = {fact: Fact(fact, fact, place, 0) for fact, place in sources.items()}
        found |= {fact.text: fact for fact in facts if fact.text in found}
        return [*found.values(), *(fact for fact in facts if fact.text not in found)]

    def _item(self, kind: ItemKind, text: str, places: Sequence[int]) -> Item:
        tag: Tag = "earlier-messages" if kind == "words" else "history-index"
        fenced = with_tags(tag, text)
        tokens = self.draft.counter.count_message(Message(role="user", parts=(Text(fenced),)))
        return Item(kind=kind, role="user", text=fenced, tokens=tokens, places=tuple(places))


def _seq(place: int) -> int:
    return place & SEQ_MASK


def _has_words(message: Message) -> bool:
    return not message.redacted and bool(message.text.strip())


def _measure_line(
    message: Message, seq: int, names: bool, shortened: bool, count: Callable[[str], int]
) -> tuple[str, int]:
    text = message.text.strip()
    if shortened and len(text) > 2 * SENTENCE_LENGTH:
        text = _shorten(text, SENTENCE_LENGTH)
    media = "".join([f" {describe_media(part)}" for part in message.parts if type(part) is Media])
    who = f" ({message.author})" if message.author and names else ""
    line = escape_markers(f"{result_id(seq, 1)}{who}: {text}{media}")
    return line, count(line)


def _list_small_words(message: Message) -> tuple[str, ...]:
    """Return the words of a message in small letters; what languages without spaces have in place of them."""
    text = message.text
    return tuple({*text.encode().translate(_SMALL_LETTERS).decode().split()} if text.isascii() else list_terms(text))


def _shorten(text: str, most: int) -> str:
    """Return the first and the last sentence of a text, each at most so long, and between them those with facts; of a
    longer one, only the facts.
    """
    if len(text) <= 2 * most:
        return text
    sentences = [each.strip() for each in _SENTENCE.findall(text) if each.strip()]
    first, last = sentences[0][:most], sentences[-1][-most:]
    facts = [fact for fact in find_facts(text) if fact not in first and fact not in last][:MAX_FACTS]
    between: dict[str, None] = {}
    for fact in facts:
        sentence = next((each for each in sentences[1:-1] if fact in each), fact)
        between[sentence if len(sentence) <= most else fact] = None
    inside = [each for each in between if not any([each != other and each in other for other in between])]
    return f"{first} [… {' … '.join(inside)} …] {last}" if inside else f"{first} […] {last}"
