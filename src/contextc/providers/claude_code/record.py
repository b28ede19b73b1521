"""The transcript of a session as it is stored: where it stands, what came after, and a copy that ends there.

Entries are the CLI's own lines, in the order they were written, each naming the one before it. Whatever it was, a
session is what its entries say: so the first entries of one are a session too, and it stood there once. After the entry
that the ledger knows as the cursor, what belongs to the same turn is kept: the snapshot of a prompt, the result of a
tool that ended the turn. The next prompt, the next words of the model, or a prompt that was queued, is behind it.
"""

from typing import NamedTuple, cast

from contextc._json import JSON, JSONObject, canonical

SPOKEN = ("user", "assistant")
ENDED = ("end_turn", "stop_sequence", "max_tokens", "refusal")


class Standing(NamedTuple):
    """A transcript, parted at a cursor."""

    kept: list[JSONObject]
    behind: list[JSONObject]

    @property
    def is_clean(self) -> bool:
        """Whether nothing was said behind the cursor."""
        return not any(_is_spoken(entry) or _is_queued(entry) for entry in self.behind)

    @property
    def leaf(self) -> str:
        """The entry that the next one follows."""
        return next((entry["uuid"] for entry in reversed(self.kept) if _is_linked(entry)), "")


def standing(entries: list[JSONObject], cursor: str) -> Standing | None:
    """The transcript parted at the cursor, its end where there is none; None where it does not hold it, or has gaps."""
    if not cursor:
        return Standing(entries, [])
    place = next((place for place, entry in enumerate(entries) if entry.get("uuid") == cursor), None)
    if place is None or not _is_whole(entries[: place + 1]):
        return None
    end = place + 1
    while end < len(entries) and not _begins(entries[end]):
        end += 1
    return Standing(entries[:end], entries[end:])


def answered(behind: list[JSONObject], history: list[JSONObject], prompt: JSONObject) -> list[JSONObject]:
    """The lines in which exactly this was answered in full, as the CLI would have given them; none where it was not."""
    spoken = [entry for entry in behind if _is_spoken(entry)]
    asked = [place for place, entry in enumerate(spoken) if "promptId" in entry and not _is_result(entry)]
    if len(asked) != 1 or _said(spoken[: asked[0] + 1]) != _said([*history, {"message": prompt}]):
        return []
    answer = spoken[asked[0] + 1 :]
    last = answer[-1] if answer else {}
    if last.get("type") != "assistant" or last["message"].get("stop_reason") not in ENDED:
        return []
    return [] if any(_is_synthetic(entry) for entry in answer) else [_line(entry) for entry in answer]


def renamed(entries: list[JSONObject], session: str) -> list[JSONObject]:
    """The same entries in a session of another name."""
    return [{**entry, "sessionId": session} if "sessionId" in entry else entry for entry in entries]


def ending(lines: list[JSONObject]) -> JSONObject:
    """What the CLI says at the end of a turn, for one whose end nobody has heard."""
    last = lines[-1]
    texts = [block["text"] for block in _blocks(last["message"]) if block.get("type") == "text"]
    return {
        "type": "result",
        "subtype": "success",
        "is_error": False,
        "session_id": last["session_id"],
        "stop_reason": last["message"]["stop_reason"],
        "result": "".join(texts),
    }


def _line(entry: JSONObject) -> JSONObject:
    names = ("type", "message", "uuid", "timestamp")
    line = {name: entry[name] for name in names if name in entry}
    if "toolUseResult" in entry:
        line["tool_use_result"] = entry["toolUseResult"]
    return {**line, "session_id": entry.get("sessionId", ""), "parent_tool_use_id": None}


def _is_whole(entries: list[JSONObject]) -> bool:
    """Whether the last entry leads back to a first one: an append that failed leaves a gap."""
    parents = {entry["uuid"]: entry.get("parentUuid") for entry in entries if "uuid" in entry}
    found: JSON = entries[-1].get("uuid")
    while found is not None:
        if found not in parents:
            return False
        found = parents.pop(found)
    return True


def _begins(entry: JSONObject) -> bool:
    """Whether this is no longer of the turn before it."""
    return _is_queued(entry) or (_is_spoken(entry) and not _is_result(entry))


def _is_queued(entry: JSONObject) -> bool:
    return entry.get("type") == "queue-operation"


def _is_linked(entry: JSONObject) -> bool:
    return bool(entry.get("uuid")) and "parentUuid" in entry and not entry.get("isSidechain")


def _is_spoken(entry: JSONObject) -> bool:
    return entry.get("type") in SPOKEN and not entry.get("isSidechain") and not entry.get("isMeta")


def _is_result(entry: JSONObject) -> bool:
    return entry.get("type") == "user" and any(
        block.get("type") == "tool_result" for block in _blocks(entry["message"])
    )


def _is_synthetic(entry: JSONObject) -> bool:
    """Whether the CLI wrote this in the model's place, to say what went wrong."""
    return bool(entry.get("isApiErrorMessage")) or entry["message"].get("model") == "<synthetic>"


def _said(lines: list[JSONObject]) -> list[bytes]:
    """Who said what, block by block: how it is parted into lines does not matter."""
    return [canonical([line["message"]["role"], block]) for line in lines for block in _blocks(line["message"])]


def _blocks(message: JSONObject) -> list[JSONObject]:
    content: JSON = message.get("content")
    return [{"type": "text", "text": content}] if isinstance(content, str) else cast(list[JSONObject], content or [])
