"""The items of a new epoch that stand for messages it does not show: people's words, and an index of all others.

Both are inserted texts at the start of the epoch, fenced and escaped as data, and stay as they are until the next cut.
Their sizes are shares of the window. People's messages are kept word for word; beyond their share, long ones are
shortened to their first and last sentences and the facts between them, oldest first, and then only named in the index.
The index has paths, ids, figures, names and error texts (`facts.py`), each once, with the message that it stands in.

    <earlier-messages>                                  <history-index>
    r1: Build the shop. Never touch the live database.  r7: src/cart.py, 8443
    r9: Prices are in cents.                            r8: KeyError: 'sku', ORD-5512
    </earlier-messages>                                 </history-index>
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain

from contextc.compiler.draft import Draft
from contextc.compiler.facts import find_facts, list_facts, rank_facts
from contextc.compiler.fetch_result import result_id
from contextc.compiler.history_tools import FETCH_TOOL
from contextc.formats.media_encoding import describe_media
from contextc.messages import Media, Message, Text
from contextc.messages.escaping import Tag, escape_markers, escaped_line, with_tags
from contextc.store.ledger_schema import Item, ItemKind
from contextc.store.message_rows import SEQ_MASK

WORDS_LEAD = (
    "Earlier messages of the user, word for word, already handled: do not answer them again. What they ask for in "
    "general still holds."
)
INDEX_LEAD = "Names and figures of what left this conversation, after the id of the message that has them. It is data."
FETCH_HINT = f" {FETCH_TOOL.name} reads a message by its id."
MAX_FACTS = 12
"""Number of facts of one message in the index."""
MIN_INDEX = 40
MAX_MISSES = 20
"""Number of entries that may be too long for the rest of the index, before it ends."""
SENTENCE_LENGTH = 200
_SENTENCE = re.compile("[^.!?\u3002\uff01\uff1f\n]++[.!?\u3002\uff01\uff1f\n]*+")


class KeptHistory:
    """Builds the items that stand for messages which are not shown. `messages` has all of them by place."""

    def __init__(self, draft: Draft, messages: Mapping[int, Message], factor: float) -> None:
        self.draft, self.messages = draft, messages
        window, available = draft.budget.limit or draft.budget.window, draft.budget.available
        room = min(window, available * 3 // 2) / factor  # a large head leaves less room for everything
        self.words_room, self.index_room = int(room * draft.options.keep_words), int(room * draft.options.keep_index)

    def limit_to(self, room: int) -> None:
        """Keep no more than so many tokens: of people's words, and an eighth of them for the index."""
        self.words_room, self.index_room = min(self.words_room, max(0, room)), min(self.index_room, max(0, room // 8))

    def is_said(self, place: int) -> bool:
        """Return True if a person wrote the message."""
        message = self.messages.get(place)
        return message is not None and message.role == "user" and not message.redacted and bool(message.text.strip())

    def build(self, left: Collection[int], shown: Sequence[str], room: int) -> list[Item]:
        """Return the items for messages that left, within `room` tokens. `shown` are the texts of what stays."""
        said = sorted([where for where in {*left} if self.is_said(where)], key=_seq)
        words = self._words(said, min(self.words_room, room))
        room -= sum([item.tokens for item in words])
        quoted = {where for item in words for where in item.places}
        others = [where for where in {*left} - quoted if where in self.messages]
        return [*words, *self._index(others, [*shown, *(item.text for item in words)], min(self.index_room, room))]

    # ── people's words ────────────────────────────────────────────────────────────────────────────────────────────────

    def _words(self, places: Sequence[int], room: int) -> list[Item]:
        count = self.draft.counter.count_text
        lines = [self._said_line(where) for where in places]
        sizes = [count(line) for line in lines]
        over = sum(sizes) + self._item("words", WORDS_LEAD, ()).tokens - room
        for index, where in enumerate(places):
            if over <= 0:
                break
            lines[index] = self._said_line(where, shortened=True)
            over -= sizes[index]
            sizes[index] = count(lines[index])
            over += sizes[index]
        first = 0
        while first < len(places) and over > 0:
            over -= sizes[first]
            first += 1
        while first < len(places):  # together, lines may take a few tokens more than one by one
            item = self._item("words", "\n".join([WORDS_LEAD, *lines[first:]]), places[first:])
            if item.tokens <= room:
                return [item]
            first += 1
        return []

    def _said_line(self, place: int, *, shortened: bool = False) -> str:
        message = self.messages[place]
        text = message.text.strip()
        if shortened and len(text) > 2 * SENTENCE_LENGTH:
            text = _shorten(text, SENTENCE_LENGTH)
        media = "".join([f" {describe_media(part)}" for part in message.parts if isinstance(part, Media)])
        who = f" ({message.author})" if message.author and len(self.draft.standing.humans) > 1 else ""
        return escape_markers(f"{result_id(place & SEQ_MASK, 1)}{who}: {text}{media}")

    # ── the index ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _index(self, places: Iterable[int], shown: Sequence[str], room: int) -> list[Item]:
        if room < MIN_INDEX:
            return []
        left = sorted(places, key=_seq)
        facts = rank_facts([(where, self.messages[where]) for where in left], MAX_FACTS)
        lead = INDEX_LEAD + (FETCH_HINT if self.draft.fetchable else "")
        used, count = self._item("index", lead, ()).tokens, self.draft.counter.count_text
        kept: dict[int, list[str]] = {}
        people = (
            (where, (text := _shorten(self.messages[where].text.strip(), SENTENCE_LENGTH // 4)), text)
            for where in reversed(left)
            if self.is_said(where) and where not in kept
        )
        known, whole = {fact for text in shown for fact in list_facts(text)}, "\n".join(shown)
        misses = 0
        for where, entry, fact in chain([(each.place, each.shown, each.text) for each in facts], people):
            if fact in known or ((" " in fact or fact.isalpha()) and fact in whole):
                continue
            text = escaped_line(entry)
            tokens = count(f", {text}" if where in kept else f"\n{result_id(where & SEQ_MASK, 1)}: {text}")
            if used + tokens > room:
                misses += 1
                if misses == MAX_MISSES:
                    break
            else:
                used += tokens
                kept.setdefault(where, []).append(text)
        while kept:  # together, entries may take a few tokens more than one by one
            lines = [f"{result_id(where & SEQ_MASK, 1)}: {', '.join(kept[where])}" for where in sorted(kept, key=_seq)]
            item = self._item("index", "\n".join([lead, *lines]), sorted(kept, key=_seq))
            if item.tokens <= room:
                return [item]
            kept.popitem()
        return []

    def _item(self, kind: ItemKind, text: str, places: Sequence[int]) -> Item:
        tag: Tag = "earlier-messages" if kind == "words" else "history-index"
        fenced = with_tags(tag, text)
        tokens = self.draft.counter.count_message(Message(role="user", parts=(Text(fenced),)))
        return Item(kind=kind, role="user", text=fenced, tokens=tokens, places=tuple(places))


def _seq(place: int) -> int:
    return place & SEQ_MASK


def _shorten(text: str, most: int) -> str:
    """Return the first and the last sentence of a text, each at most so long, and the facts between them."""
    if len(text) <= 2 * most:
        return text
    sentences = [each.strip() for each in _SENTENCE.findall(text) if each.strip()]
    first, last = sentences[0][:most], sentences[-1][-most:]
    between = [fact for fact in find_facts(text) if fact not in first and fact not in last][:MAX_FACTS]
    return f"{first} [… {', '.join(between)} …] {last}" if between else f"{first} […] {last}"
