"""Codex' transcripts: `sessions/<year>/<month>/<day>/rollout-<time>-<thread>.jsonl` in its folder.

Where a thread was taken back, or forked off another, a further file begins: its first line says behind which line of
which other file it goes on. The newest file of a thread is where it stands; the lines before it are read from the
files it stands on.
"""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

from contextc._json import JSON, JSONObject
from contextc.errors import InvalidInput
from contextc.transfer.found import UUID, Found
from contextc.transfer.given import Given, Sample
from contextc.transfer.sources import Transcript
from contextc.transfer.transcripts import Reading, first_lines, modified, parsed, transcripts

ABOUT = "Codex' transcripts, a session a file"
NAME = re.compile(rf"rollout-.+?-({UUID.pattern})(?:_({UUID.pattern}))?\.jsonl", re.IGNORECASE)
DEEPEST = 1000  # files that may stand on one another
SAID = ("session_meta", "response_item", "event_msg", "compacted", "turn_context")
"""The lines that say anything of what was said; of others there are more with every version."""


def recognises(sample: Sample) -> bool:
    return any(line.get("type") == "session_meta" and isinstance(line.get("payload"), dict) for line in sample.objects)


def conversations(given: Given) -> Iterator[Found]:
    return transcripts(given, Reading("codex", whole, session_of, title_of))


def session_of(lines: Sequence[JSONObject]) -> str:
    return str(_meta(lines).get("id") or "")


def title_of(lines: Sequence[JSONObject]) -> str:
    return ""


def found(directory: str | None) -> Iterator[Transcript]:
    sessions = Path(os.environ.get("CODEX_HOME") or Path.home() / ".codex") / "sessions"
    newest: dict[str, tuple[str, Path]] = {}
    for path in sorted(sessions.glob("**/rollout-*.jsonl")):
        if (name := NAME.fullmatch(path.name)) is None:
            continue
        thread, segment = name.group(1), name.group(2) or ""  # segments are named in the order of time
        newest[thread] = max(newest.get(thread, ("", path)), (segment, path))
    for thread, (_, path) in newest.items():
        meta = _meta(first_lines(path, 1))
        ran = str(meta.get("cwd") or "")
        is_of_an_agent = isinstance(meta.get("source"), dict)  # begun by another thread, for a part of its work
        if not is_of_an_agent and (directory is None or os.path.realpath(ran) == os.path.realpath(directory)):
            yield Transcript(id=thread, path=path, directory=ran, time=modified(path))


def whole(path: Path | None, lines: Sequence[JSONObject]) -> list[JSONObject]:
    """The lines of a thread from its first, through all files it stands on."""
    found = list(lines)
    for _ in range(DEEPEST):
        base: JSON = _meta(found).get("history_base")
        if not isinstance(base, dict):
            return [line for line in found if line.get("type") in SAID]
        asked = cast(JSONObject, base)
        before = _file(path, str(asked.get("thread_id")))
        if before is None:
            raise InvalidInput(
                f"The transcript continues another one, {asked.get('thread_id')}, whose file is missing",
                fix="Import it from the `sessions` folder of Codex, where it was written.",
            )
        earlier, _ = parsed(before.read_bytes())
        end: JSON = asked.get("end_ordinal_exclusive")
        found = [*[line for line in earlier if _ordinal(line) < int(end or 0)], *found]
    raise InvalidInput(f"The transcript continues more than {DEEPEST} others, or itself.")


def _meta(lines: Sequence[JSONObject]) -> JSONObject:
    """What the first line says of a thread."""
    for line in lines:
        if line.get("type") == "session_meta" and isinstance(payload := line.get("payload"), dict):
            return cast(JSONObject, payload)
    return {}


def _ordinal(line: JSONObject) -> int:
    found: JSON = line.get("ordinal")
    return found if isinstance(found, int) else 0


def _file(path: Path | None, name: str) -> Path | None:
    """The file of a thread, or of a segment of one, in the folder that holds this one."""
    if path is None or not UUID.fullmatch(name):
        return None
    root = next((folder for folder in path.absolute().parents if folder.name == "sessions"), path.absolute().parent)
    for each in sorted(root.glob(f"**/rollout-*{name}.jsonl")):
        found = NAME.fullmatch(each.name)
        if found is not None and (found.group(2) or found.group(1)) == name:
            return each
    return None
