"""The active messages of a transcript: from its last line back to the first, by `parentUuid`.

Lines that are not on this path were abandoned. As in Claude Code itself, two kinds of lines are restored. First, blocks
and results of a reply with several calls: each result is a child of its call's block, so the path contains only one of
them. Second, messages that a compaction kept, placed after its summary.
"""

from collections import deque
from collections.abc import Sequence
from typing import cast

from contextc._json import JSON, JSONObject
from contextc.formats.claude_code.message_lines import tool_results

LineIndex = int


def is_transcript(lines: Sequence[JSONObject]) -> bool:
    return any("parentUuid" in line for line in lines)


def active_lines(lines: Sequence[JSONObject]) -> list[LineIndex]:
    """Return the indexes of the conversation's lines, in order. All indexes if this is no transcript."""
    if not is_transcript(lines):
        return list(range(len(lines)))
    return _Chain(lines).indexes()


class _Chain:
    def __init__(self, lines: Sequence[JSONObject]) -> None:
        self.lines = lines
        linked = [
            index for index, line in enumerate(lines) if "parentUuid" in line and isinstance(line.get("uuid"), str)
        ]
        self.places: dict[str, LineIndex] = {lines[index]["uuid"]: index for index in linked}
        self.children: dict[str, list[LineIndex]] = {}
        for index in linked:
            if isinstance(parent := lines[index]["parentUuid"], str):
                self.children.setdefault(parent, []).append(index)
        own = [index for index in linked if not lines[index].get("isSidechain")]
        self.leaf = own[-1] if own else None

    def indexes(self) -> list[LineIndex]:
        return self._with_siblings(self._with_kept(self._path_from(self.leaf)))

    def _path_from(self, leaf: LineIndex | None) -> list[LineIndex]:
        found: dict[LineIndex, None] = {}
        while leaf is not None and leaf not in found:
            found[leaf] = None
            parent: JSON = self.lines[leaf]["parentUuid"]
            leaf = self.places.get(parent) if isinstance(parent, str) else None
        return list(found)[::-1]

    def _with_kept(self, way: list[LineIndex]) -> list[LineIndex]:
        """Return the path with the messages that a compaction kept, after its summary."""
        on_way = set(way)
        behind: dict[LineIndex, list[LineIndex]] = {}
        for boundary in [index for index in way if self.lines[index].get("subtype") == "compact_boundary"]:
            told: JSON = self.lines[boundary].get("compactMetadata")
            kept: JSON = cast(JSONObject, told).get("preservedMessages") if isinstance(told, dict) else None
            if not isinstance(kept, dict):
                continue
            known = cast(JSONObject, kept)
            names = cast(list[JSON], known["uuids"]) if isinstance(known.get("uuids"), list) else []
            here = [self.places[str(name)] for name in names if str(name) in self.places]
            anchor = self.places.get(str(known.get("anchorUuid")))
            if anchor is not None and anchor in on_way:
                new = [index for index in here if index not in on_way]
                behind[anchor] = [*new, *behind.get(anchor, [])]
                on_way.update(new)
        found: list[LineIndex] = []
        waiting = way[::-1]
        while waiting:
            found.append(waiting.pop())
            waiting += reversed(behind.pop(found[-1], []))
        return found

    def _with_siblings(self, way: list[LineIndex]) -> list[LineIndex]:
        found: list[LineIndex] = []
        on_way, place = set(way), 0
        answered = {str(block.get("tool_use_id")) for index in way for block in tool_results(self.lines[index])}
        while place < len(way):
            end = self._reply_end(way, place)
            run, place = way[place:end], end
            found += run
            if (
                place < len(way)
                and tool_results(self.lines[way[place]])
                and self.lines[run[-1]].get("type") == "assistant"
            ):
                beside = self._siblings(run, on_way, answered)
                found += [index for index in beside if self.lines[index]["type"] == "assistant"]
                answers = [index for index in beside if self.lines[index]["type"] == "user"]
                next_ones = self._answers(way, place)
                found += sorted({*answers, *next_ones})
                place += len(next_ones)
        return found

    def _reply_end(self, way: list[LineIndex], place: int) -> int:
        """Return the position after the last line of the reply that begins here."""
        name = self._reply(way[place])
        end = place + 1
        while name and end < len(way) and self._reply(way[end]) == name:
            end += 1
        return end

    def _reply(self, index: LineIndex) -> str:
        line = self.lines[index]
        message: JSON = line.get("message") if line.get("type") == "assistant" else None
        return str(cast(JSONObject, message).get("id") or "") if isinstance(message, dict) else ""

    def _answers(self, way: list[LineIndex], place: int) -> list[LineIndex]:
        end = place
        while end < len(way) and tool_results(self.lines[way[end]]):
            end += 1
        return way[place:end]

    def _siblings(self, run: list[LineIndex], on_way: set[LineIndex], answered: set[str]) -> list[LineIndex]:
        """Return blocks of the same reply, and results of its calls, that are not on the path."""
        name, open_lines = self._reply(run[-1]), deque(run)
        beside: list[LineIndex] = []
        while name and open_lines:
            for child in self.children.get(self.lines[open_lines.popleft()]["uuid"], []):
                if child not in on_way and self._reply(child) == name:
                    beside.append(child)
                    open_lines.append(child)
                elif child not in on_way and tool_results(self.lines[child]):
                    beside.append(child)
        return sorted(index for index in beside if not self._is_superseded(index, answered))

    def _is_superseded(self, index: LineIndex, answered: set[str]) -> bool:
        """Return True if this is the result of a call that has another result on the path."""
        return any(str(block.get("tool_use_id")) in answered for block in tool_results(self.lines[index]))
