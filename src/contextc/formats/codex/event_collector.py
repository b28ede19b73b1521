"""Events of a running Codex: notifications of the app-server, or the lines of `codex exec --json`.

Display and storage share one pass over the events: `EventCollector.read` returns what an event adds, and the steps keep
everything. A step is one answer of the model with the results of its tools. It ends where the usage of the model call
is reported, or where the model continues after a result. Events of other threads, such as those of sub-agents, are
ignored.
"""

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple, TypeAlias, cast

from contextc._json import JSON, JSONObject
from contextc.formats.base import append_text, text_of
from contextc.formats.codex.exec_lines import WARNING_TYPE, Notification, is_exec_line, to_notification
from contextc.formats.codex.items import CALL_TYPES, USER_ITEMS, is_running
from contextc.formats.request_settings import object_or_empty

PARAGRAPH_BREAK = "\n\n"
SHOWN_TEXT_KEY = "thinks"
"""Key in a streamed reasoning item: which of its two texts came first, and was shown."""
REASONING_DELTAS = {
    "item/reasoning/summaryTextDelta": ("summary", "summaryIndex"),
    "item/reasoning/textDelta": ("content", "contentIndex"),
}
COMPACTION = "contextCompaction"
DeltaKind: TypeAlias = Literal["text", "reasoning", "call", "result"]


class ItemDelta(NamedTuple):
    """An addition to an item: a piece of text or reasoning, a call, or a result."""

    what: DeltaKind
    item: JSONObject
    text: str = ""


class ModelStep:
    """One answer of the model: its items by id, and the tokens of the model call."""

    def __init__(self) -> None:
        self.items: dict[str, JSONObject] = {}
        self.usage: JSONObject | None = None
        self.answered = False


def is_event(wire: JSONObject) -> bool:
    """Return True if this is a notification, a line, or a response to the client, and not an item."""
    answers = "type" not in wire and "id" in wire and ("result" in wire or "error" in wire)
    return isinstance(wire.get("method"), str) or is_exec_line(wire) or answers


def completed_notification(item: JSONObject) -> JSONObject:
    """Return a notification that this item is complete."""
    return {"method": "item/completed", "params": {"item": item}}


def collect_items(events: Iterable[JSONObject]) -> list[JSONObject]:
    """Return all items of the events, including the user's, each in its last state."""
    gathered = EventCollector(include_users=True)
    for event in events:
        gathered.read(event)
    return [item for step in gathered.steps for item in step.items.values()]


def reasoning_text(item: JSONObject) -> str:
    """Return the text of a reasoning item: its summary, or else the original reasoning."""
    names = ("content", "summary") if item.get(SHOWN_TEXT_KEY) == "content" else ("summary", "content")
    texts = next((item[name] for name in names if item.get(name)), ())
    return PARAGRAPH_BREAK.join(cast(list[str], texts))


class EventCollector:
    """The state of a turn so far. With `include_users` it also collects user messages, of any number of turns."""

    def __init__(self, *, include_users: bool = False) -> None:
        self.users = include_users
        self.thread = self.turn = self.status = ""
        self.model: str | None = None
        self.error: JSONObject | None = None
        self.compacted = False
        self.notes: list[str] = []
        self.steps: list[ModelStep] = []
        self._places: dict[str, ModelStep] = {}
        self._given: dict[str, int] = {}
        self._done: set[str] = set()
        self._compacting = False
        self._total: JSON = None

    def read(self, event: JSONObject) -> list[ItemDelta]:
        """Return what this event adds."""
        told = to_notification(event) if is_exec_line(event) else _as_notification(event)
        if "id" in event or not self._is_ours(told.params):
            return []  # a request to the client, or an event of another thread
        match told.method:
            case "thread/started" | "thread/settings/updated" | "model/rerouted":
                self._apply_settings(told.params)
            case "turn/started":
                self.turn = text_of(object_or_empty(told.params.get("turn")).get("id")) or self.turn
            case "item/started" | "item/completed":
                return list(self._item(object_or_empty(told.params.get("item")), done=told.method == "item/completed"))
            case "item/agentMessage/delta":
                return self._grown(told.params)
            case "item/reasoning/summaryTextDelta" | "item/reasoning/textDelta":
                return self._thought(told.params, *REASONING_DELTAS[told.method])
            case "thread/tokenUsage/updated":
                self._add_usage(object_or_empty(told.params.get("tokenUsage")))
            case "thread/compacted":
                self.compacted = True
            case "error":
                self._failed(told.params)
            case "turn/completed":
                return list(self._ended(object_or_empty(told.params.get("turn"))))
            case _:
                pass
        return []

    def _is_ours(self, params: JSONObject) -> bool:
        thread = text_of(params.get("threadId") or object_or_empty(params.get("thread")).get("id"))
        turn = text_of(params.get("turnId") or object_or_empty(params.get("turn")).get("id"))
        self.thread = self.thread or thread
        if thread not in ("", self.thread):
            return False
        return self.users or not (turn and self.turn and turn != self.turn)

    def _apply_settings(self, params: JSONObject) -> None:
        settings = object_or_empty(params.get("threadSettings")) or object_or_empty(params.get("thread"))
        self.model = text_of(params.get("toModel") or settings.get("model")) or self.model
        if params.get("toModel"):
            self.notes.append(f"Codex went on with another model: {params['toModel']}")

    def _item(self, item: JSONObject, *, done: bool) -> Iterator[ItemDelta]:
        kind = text_of(item.get("type"))
        if kind == COMPACTION:
            self.compacted, self._compacting = True, not done
        if kind == WARNING_TYPE:
            self.notes.append(f"Codex warns: {text_of(item.get('message'))}")
            return
        if not kind or (not self.users and (kind in USER_ITEMS or kind == COMPACTION)):
            return
        call, name = CALL_TYPES.get(kind), text_of(item.get("id"))
        if call is not None and call.arguments_late and not done:
            return  # its arguments are known only at the end
        step, known = self._step(name), name in self._places
        self._places[name] = step
        self._done |= {name} if done else set()
        before = step.items.get(name, {})
        step.items[name] = {**before, **item} if before.get("type") == kind else {**item}
        if call is not None:
            yield from self._called(step, name, known=known, done=done)
        elif kind in ("agentMessage", "reasoning"):
            whole = step.items[name]
            text = reasoning_text(whole) if kind == "reasoning" else text_of(whole.get("text"))
            if rest := text[self._given.get(name, 0) :]:
                self._given[name] = len(text)
                yield ItemDelta("reasoning" if kind == "reasoning" else "text", whole, rest)

    def _called(self, step: ModelStep, name: str, *, known: bool, done: bool) -> Iterator[ItemDelta]:
        item = step.items[name]
        if not known:
            yield ItemDelta("call", item)
        if done and not is_running(item):
            step.answered = True
            yield ItemDelta("result", item)

    def _step(self, name: str) -> ModelStep:
        """Return the step of an item: the one it began in, the last one, or a new one."""
        if name in self._places:
            return self._places[name]
        if not self.steps or self.steps[-1].usage is not None or self.steps[-1].answered:
            self.steps.append(ModelStep())
        return self.steps[-1]

    def _begun(self, params: JSONObject, item: JSONObject) -> JSONObject:
        """Return the item that a delta belongs to. Its start event may be missing."""
        name = text_of(params.get("itemId"))
        step = self._places.setdefault(name, self._step(name))
        return step.items.setdefault(name, {**item, "id": name})

    def _grown(self, params: JSONObject) -> list[ItemDelta]:
        item, piece = self._begun(params, {"type": "agentMessage", "text": ""}), text_of(params.get("delta"))
        append_text(item, "text", piece)
        self._given[item["id"]] = self._given.get(item["id"], 0) + len(piece)
        return [ItemDelta("text", item, piece)] if piece else []

    def _thought(self, params: JSONObject, place: str, number: str) -> list[ItemDelta]:
        item, piece = self._begun(params, {"type": "reasoning"}), text_of(params.get("delta"))
        texts = list(cast(list[str], item.get(place) or []))
        index: JSON = params.get(number)
        index = max(index, 0) if isinstance(index, int) else 0
        gap = PARAGRAPH_BREAK * max(0, index - max(len(texts) - 1, 0))
        texts += [""] * (index + 1 - len(texts))
        texts[index] += piece
        item[place] = texts
        if item.setdefault(SHOWN_TEXT_KEY, place) != place:
            return []
        self._given[item["id"]] = self._given.get(item["id"], 0) + len(gap + piece)
        return [ItemDelta("reasoning", item, gap + piece)] if gap + piece else []

    def _add_usage(self, usage: JSONObject) -> None:
        """Store the tokens of one model call. Repeated reports, and those during compaction, do not end a step."""
        last, total = object_or_empty(usage.get("last")), object_or_empty(usage.get("total")).get("totalTokens")
        if not (last.get("inputTokens") or last.get("outputTokens")) or (total is not None and total == self._total):
            return
        self._total = total
        said = f"{last.get('inputTokens')} tokens in, {last.get('outputTokens')} out"
        if self._compacting:
            self.notes.append(f"Codex asked its model to shorten the history: {said}")
        elif self.steps and self.steps[-1].usage is None:
            self.steps[-1].usage = last
        elif self.turn:
            self.notes.append(f"Codex asked its model for something that it did not show: {said}")

    def _failed(self, params: JSONObject) -> None:
        error = object_or_empty(params.get("error"))
        if params.get("willRetry"):
            self._remove_unfinished(self.steps[-1:])
            self.notes.append(f"Codex tried again: {text_of(error.get('message'))}")
        else:
            self.error = error

    def _ended(self, turn: JSONObject) -> Iterator[ItemDelta]:
        self.turn = text_of(turn.get("id")) or self.turn
        self.status = text_of(turn.get("status"))
        self.error = object_or_empty(turn.get("error")) or (None if self.status == "completed" else self.error)
        for item in cast(list[JSON], turn.get("items") or []):
            if isinstance(item, dict) and text_of(cast(JSONObject, item).get("id")) not in self._places:
                yield from self._item(cast(JSONObject, item), done=True)
        if self.status == "completed":
            self._remove_unfinished(self.steps)

    def _remove_unfinished(self, steps: Iterable[ModelStep]) -> None:
        """Remove text that started but never finished: Codex retried, and its thread does not contain it."""
        for step in steps:
            for name, item in list(step.items.items()):
                if name not in self._done and item.get("type") in ("agentMessage", "reasoning"):
                    del step.items[name], self._places[name]


def _as_notification(event: JSONObject) -> Notification:
    return Notification(text_of(event.get("method")), object_or_empty(event.get("params")))
