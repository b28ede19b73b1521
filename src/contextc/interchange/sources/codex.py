"""Transcripts of Codex: `sessions/<year>/<month>/<day>/rollout-<time>-<thread>.jsonl` in its folder.

After a rollback or a fork, a thread continues in a new file. Its first line names the file and the line that it
continues. The newest file of a thread is the current one. Earlier lines are read from the files it is based on.
"""

import os
import re
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple, cast

from msgspec.structs import replace

from contextc._json import JSON, JSONObject, as_object, encode
from contextc.errors import InvalidInput
from contextc.formats import formatter
from contextc.formats.codex.codec import apply_line, is_rollout_line
from contextc.interchange.found_conversation import (
    UUID,
    FoundConversation,
    ModelCall,
    ReadCalls,
    TranscriptReader,
    modified_time,
    parse_lines,
    parse_time,
    read_first_lines,
    read_transcripts,
)
from contextc.interchange.input_files import FileSample, ImportInput
from contextc.interchange.sources import TranscriptFile
from contextc.messages import Message, Usage
from contextc.providers.registry import provider_names

ABOUT = "transcripts of Codex, one file per session"
FILE_NAME = re.compile(rf"rollout-.+?-({UUID.pattern})(?:_({UUID.pattern}))?\.jsonl", re.IGNORECASE)
FORMAT = "codex"
SENT_FORMAT, DEFAULT_PROVIDER, UNKNOWN_MODEL = "openai_responses", "openai", "unknown"
MODEL, TOOL, INPUT = "model", "tool", "input"
MAX_DEPTH = 1000  # files in a chain of continuations
CONTENT_TYPES = ("session_meta", "response_item", "event_msg", "compacted", "turn_context")
"""The types of lines that hold content. New versions add other types."""


def matches(sample: FileSample) -> bool:
    return any(line.get("type") == "session_meta" and isinstance(line.get("payload"), dict) for line in sample.objects)


def read_conversations(given: ImportInput) -> Iterator[FoundConversation]:
    return read_transcripts(given, TranscriptReader(FORMAT, all_lines, session_id, session_title, read_calls))


def session_id(lines: Sequence[JSONObject]) -> str:
    return str(_meta(lines).get("id") or "")


def session_title(lines: Sequence[JSONObject]) -> str:
    return ""


def find_transcripts(directory: str | None) -> Iterator[TranscriptFile]:
    sessions = Path(os.environ.get("CODEX_HOME") or Path.home() / ".codex") / "sessions"
    newest: dict[str, tuple[str, Path]] = {}
    for path in sorted(sessions.glob("**/rollout-*.jsonl")):
        if (name := FILE_NAME.fullmatch(path.name)) is None:
            continue
        thread, segment = name.group(1), name.group(2) or ""  # segments are named in the order of time
        newest[thread] = max(newest.get(thread, ("", path)), (segment, path))
    for thread, (_, path) in newest.items():
        meta = _meta(read_first_lines(path, 1))
        ran = str(meta.get("cwd") or "")
        is_of_an_agent = isinstance(meta.get("source"), dict)  # a subagent of another thread
        if not is_of_an_agent and (directory is None or os.path.realpath(ran) == os.path.realpath(directory)):
            yield TranscriptFile(id=thread, path=path, directory=ran, time=modified_time(path))


def all_lines(path: Path | None, lines: Sequence[JSONObject]) -> list[JSONObject]:
    """Return all lines of a thread, from all files that it is based on."""
    found = list(lines)
    for _ in range(MAX_DEPTH):
        base: JSON = _meta(found).get("history_base")
        if not isinstance(base, dict):
            return [line for line in found if line.get("type") in CONTENT_TYPES]
        asked = cast(JSONObject, base)
        before = _file(path, str(asked.get("thread_id")))
        if before is None:
            raise InvalidInput(
                f"The transcript continues another one, {asked.get('thread_id')}, whose file is missing",
                fix="Import it from the `sessions` folder of Codex, where it was written.",
            )
        earlier, _ = parse_lines(before.read_bytes())
        end: JSON = asked.get("end_ordinal_exclusive")
        found = [*[line for line in earlier if _ordinal(line) < int(end or 0)], *found]
    raise InvalidInput(f"The transcript continues more than {MAX_DEPTH} others, or itself.")


def read_calls(lines: Sequence[JSONObject], messages: list[Message]) -> ReadCalls:
    """Return the messages with their times, and one call per `token_count` event that counts new tokens.

    What was rolled back, and what a compaction replaced, are paths of their own.
    """
    now, cuts = _read_path(lines, messages)
    calls = {call.id: call for call in now.calls}
    abandoned: list[list[Message]] = []
    for cut in reversed(cuts):
        if all(call.messages or call.reply for call in calls.values()):
            break
        request = formatter(FORMAT).decode_request(list(lines[:cut]))
        before = [*([request.system] if request.system is not None else []), *request.messages]
        other, _ = _read_path(lines[:cut], before)
        own = [call for call in other.calls if call.reply and not calls[call.id].reply]
        if own:
            calls |= {call.id: replace(call, line=len(abandoned)) for call in own}
            abandoned.append(_share_prefix(other.messages, [now.messages, *abandoned]))
    return ReadCalls(now.messages, list(calls.values()), abandoned)


def _read_path(lines: Sequence[JSONObject], messages: list[Message]) -> tuple[ReadCalls, list[int]]:
    """Return the messages at the end of some lines, all calls, and the lines that replaced the history."""
    reader = _CallReader(lines)
    for number, line in enumerate(lines):
        reader.add(number, line)
    runs, own = _runs([_kind(item) for item in reader.items]), _runs([_role(message) for message in messages])
    if [kind for kind, _ in runs] != [kind for kind, _ in own]:
        return ReadCalls(messages, [call.to_model_call((), (), frozenset()) for call in reader.calls]), []
    timed = list(messages)
    for (_, items), (_, indexes) in zip(runs, own, strict=True):
        time = reader.times.get(id(reader.items[items[-1]]), 0)
        for index in indexes:
            timed[index] = replace(messages[index], time=messages[index].time or time)
    kept = frozenset(map(id, reader.items))
    places = [(items[0], index) for (_, items), (_, indexes) in zip(runs, own, strict=True) for index in indexes]
    replies = [(items, indexes) for (kind, items), (_, indexes) in zip(runs, own, strict=True) if kind == MODEL]
    return ReadCalls(timed, [call.to_model_call(places, replies, kept) for call in reader.calls]), reader.cuts


def _share_prefix(messages: list[Message], others: Sequence[list[Message]]) -> list[Message]:
    """Return messages with the objects of the longest common beginning with another path."""
    best: list[Message] = []
    for other in others:
        pairs = zip(messages, other, strict=False)
        count = next((index for index, (mine, yours) in enumerate(pairs) if mine != yours), None)
        common = other[: min(len(messages), len(other)) if count is None else count]
        best = max(best, common, key=len)
    return [*best, *messages[len(best) :]]


class _Call(NamedTuple):
    """A model call: the items before its reply, and those of the reply."""

    id: str
    history: list[JSONObject]
    reply: list[JSONObject]
    head: JSONObject
    provider: str
    model: str
    usage: Usage
    began: int
    ended: int

    def to_model_call(
        self,
        places: Sequence[tuple[int, int]],
        replies: Sequence[tuple[Sequence[int], Sequence[int]]],
        kept: frozenset[int],
    ) -> ModelCall:
        is_stored = all(id(item) in kept for item in (*self.history, *self.reply))
        count, end = len(self.history), len(self.history) + len(self.reply)
        own = [index for items, indexes in replies for index in indexes if self.reply and count <= items[0] < end]
        return ModelCall(
            id=self.id,
            format=SENT_FORMAT,
            provider=self.provider,
            model=self.model,
            elements=[encode(item) for item in self.history],
            head=self.head,
            messages=[(start, index) for start, index in places if start < count] if is_stored else (),
            reply=own if is_stored else (),
            usage=self.usage,
            began=self.began,
            ended=self.ended,
        )


class _CallReader:
    """Follows the history of a thread line by line."""

    def __init__(self, lines: Sequence[JSONObject]) -> None:
        meta = _meta(lines)
        self.session = str(meta.get("id") or "")
        provider = str(meta.get("model_provider") or DEFAULT_PROVIDER)
        self.provider = provider if provider in provider_names() else DEFAULT_PROVIDER
        self.model = UNKNOWN_MODEL
        given: JSON = meta.get("instructions") or as_object(meta.get("base_instructions")).get("text")
        self.head: JSONObject = {"instructions": given} if isinstance(given, str) and given else {}
        self.items: list[JSONObject] = []
        self.times: dict[int, int] = {}
        self.calls: list[_Call] = []
        self.cuts: list[int] = []
        self.total: JSON = None
        self.read = 0

    def add(self, number: int, line: JSONObject) -> None:
        payload, time = as_object(line.get("payload")), parse_time(line.get("timestamp"))
        if not is_rollout_line(line):
            return
        if line["type"] == "turn_context" and isinstance(payload.get("model"), str):
            self.model = str(payload["model"])
        if line["type"] == "event_msg" and payload.get("type") == "token_count":
            self._count(as_object(payload.get("info")), time)
            return
        before = len(self.items)
        known = self.items
        self.items = apply_line(known, line)
        if self.items is not known:
            before = self.read = 0
            self.cuts.append(number)
        for item in self.items[before:]:
            self.times.setdefault(id(item), time)

    def _count(self, info: JSONObject, time: int) -> None:
        total, last = info.get("total_token_usage"), as_object(info.get("last_token_usage"))
        if not last or total == self.total:
            return  # the same figures once more, with other limits
        self.total = total
        ends = [index for index in range(self.read, len(self.items)) if _kind(self.items[index]) == MODEL]
        end = ends[-1] + 1 if ends else len(self.items)
        start = end
        while start > self.read and ends and _kind(self.items[start - 1]) == MODEL:
            start -= 1
        began = self.times.get(id(self.items[start - 1]), 0) if start else 0
        self.read = end if ends else self.read
        digest = blake2b(encode([self.session, time, total, last]), digest_size=8).hexdigest()
        self.calls.append(
            _Call(
                f"{self.session}/{digest}",
                self.items[:start],
                self.items[start:end],
                self.head,
                self.provider,
                self.model,
                _usage(last),
                began or time,
                time,
            )
        )


def _usage(figures: JSONObject) -> Usage:
    def figure(name: str) -> int:
        return value if isinstance(value := figures.get(name), int) else 0

    return Usage(
        input=figure("input_tokens"),
        output=figure("output_tokens"),
        cache_read=figure("cached_input_tokens"),
        reasoning=figure("reasoning_output_tokens"),
    )


def _kind(item: JSONObject) -> str:
    """Return whether an item is output of the model, a result of a tool, or input."""
    kind, role = str(item.get("type") or "message"), item.get("role")
    if kind.endswith("_output"):
        return TOOL
    return MODEL if role == "assistant" or kind != "message" else INPUT


def _role(message: Message) -> str:
    return {"assistant": MODEL, "tool": TOOL}.get(message.role, INPUT)


def _runs(kinds: Sequence[str]) -> list[tuple[str, list[int]]]:
    """Return consecutive positions of one kind. Each input is a run of its own."""
    found: list[tuple[str, list[int]]] = []
    for index, kind in enumerate(kinds):
        if found and found[-1][0] == kind != INPUT:
            found[-1][1].append(index)
        else:
            found.append((kind, [index]))
    return found


def _meta(lines: Sequence[JSONObject]) -> JSONObject:
    """Return the metadata of a thread from its first line."""
    for line in lines:
        if line.get("type") == "session_meta" and isinstance(payload := line.get("payload"), dict):
            return cast(JSONObject, payload)
    return {}


def _ordinal(line: JSONObject) -> int:
    found: JSON = line.get("ordinal")
    return found if isinstance(found, int) else 0


def _file(path: Path | None, name: str) -> Path | None:
    """Return the file of a thread, or of a segment of one, in the same `sessions` folder."""
    if path is None or not UUID.fullmatch(name):
        return None
    root = next((folder for folder in path.absolute().parents if folder.name == "sessions"), path.absolute().parent)
    for each in sorted(root.glob(f"**/rollout-*{name}.jsonl")):
        found = FILE_NAME.fullmatch(each.name)
        if found is not None and (found.group(2) or found.group(1)) == name:
            return each
    return None
