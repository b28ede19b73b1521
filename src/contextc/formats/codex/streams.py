"""The reader of a turn's notifications, with its session.

Calls are reported when they start, results when they are complete. Codex's own retries become notes.
"""

from collections.abc import Iterable

from contextc._json import JSONObject
from contextc.formats.codex.codec import (
    CALL_TYPES,
    Decoder,
    EventCollector,
    ItemDelta,
    as_turn,
    decode_turn,
    last_reply,
)
from contextc.formats.streams import Delta, StreamDecoder, StreamReader
from contextc.messages import Message, Reasoning, Text


class CodexStreamReader(StreamReader):
    """Reads one turn. `session` is the thread id, `cursor` the turn id."""

    session_fields = ("threadId",)

    def __init__(self, formatter: StreamDecoder) -> None:
        super().__init__(formatter)
        self._gathered = EventCollector()

    def message(self) -> Message:
        return last_reply(self.messages())

    def messages(self) -> list[Message]:
        found = decode_turn(as_turn(self._gathered), self.formatter.provider)
        return [self.formatter.name_codec.decode(message) for message in found]

    def _deltas(self, event: JSONObject) -> Iterable[Delta]:
        gathered, noted = self._gathered, len(self._gathered.notes)
        news = gathered.read(event)
        self.session, self.cursor = gathered.thread, gathered.turn
        self.notes += gathered.notes[noted:]
        self.compacted = gathered.compacted
        if gathered.error is not None or gathered.status == "failed":
            self.error = self.error or event
        if gathered.status == "completed":
            self.finished, self.error = True, None
        return [delta for each in news for delta in self._delta(each)]

    def _delta(self, news: ItemDelta) -> Iterable[Delta]:
        item = news.item
        if news.what == "text":
            return [Text(news.text)]
        decoder = Decoder(self.formatter.provider, model=self._gathered.model)
        if news.what == "reasoning":
            return [Reasoning(text=news.text, id=item.get("id"), provider=decoder.provider, model=decoder.model)]
        call, result = decoder.decode_call(item, CALL_TYPES[item["type"]])
        if news.what == "call":
            return [call]
        return [result] if result is not None else []
