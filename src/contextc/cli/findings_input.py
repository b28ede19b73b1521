"""The input of `contextc findings`: conversations of a store, or files that are imported into memory."""

import os
import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from contextc.cli.console import err, escape_markup, progress_bar
from contextc.cli.import_ import import_named_files
from contextc.cli.open_store import open_configured_store
from contextc.errors import InvalidInput, InvalidSetting, UnknownConversation
from contextc.interchange.found_conversation import to_name
from contextc.observation.observed_request import ObservedRequest
from contextc.store import Store, open_store
from contextc.store.channel_ids import channel_id

if TYPE_CHECKING:
    from contextc.analysis import ConversationCacheReads, ConversationCosts, Evidence, Finding, WhatIf

FILE_FIX = (
    "Findings are made from a log of requests, a HAR recording, a session of an agent, or an export. If the file holds "
    "requests of a provider, pass --format."
)
GENERATED_NAME = re.compile(r"-[0-9a-f]{8}(-\d+)?$")
"""The end of a name that depends on the time of the import."""
Named = TypeVar("Named", "Finding", "ConversationCosts", "ConversationCacheReads", "WhatIf")


class FindingsInput(Struct):
    """A store, and the names of its conversations to analyse; None for all.

    `places` are the places of the requests of a log, by conversation, channel and number. `names` are the names of
    conversations of files, which are the same at each call.
    """

    store: Store
    conversations: list[str] | None
    places: dict[tuple[str, str, int], str] = {}
    names: dict[str, str] = {}

    def rename(self, found: "Named") -> "Named":
        """Return a result with the stable name of its conversation."""
        if not self.names:
            return found
        evidence = {"evidence": tuple([self._rename_in(each) for each in getattr(found, "evidence", ())])}
        has_evidence = "evidence" in found.__struct_fields__
        name = self.names.get(found.conversation, found.conversation)
        return replace(found, conversation=name, **(evidence if has_evidence else {}))

    def _rename_in(self, evidence: "Evidence") -> "Evidence":
        other = evidence.compared
        name = self.names.get(other.conversation) if other is not None else None
        if other is None or name is None:
            return evidence
        before = evidence.before.replace(f" of {other.conversation} ", f" of {name} ", 1)
        return replace(evidence, before=before, compared=replace(other, conversation=name))

    def place_of(self, finding: "Finding") -> str:
        """Return the place of the request of a finding, such as "log.jsonl, line 2"; "" if it is unknown."""
        return self.places.get((finding.conversation, finding.channel, finding.request), "")


@contextmanager
def open_input(names: Sequence[str], format: str | None, store: str | None) -> Generator[FindingsInput]:
    """Open the store, or import files into memory."""
    files = [each for each in names if each == "-" or os.path.isfile(each)]
    if not files:
        if format is not None:
            raise InvalidSetting("--format applies to files", fix="Pass a file, or remove it.")
        with open_configured_store(store) as handle:
            _check_names(handle, names)
            yield FindingsInput(handle, list(dict.fromkeys(names)) or None)
        return
    if len(files) < len(names):
        other = next(each for each in names if each not in files)
        raise InvalidSetting("Files and conversations cannot be mixed", got=other, fix="Pass one kind only.")
    with open_store("memory:") as handle:
        yield _import_files(handle, files, format)


def _check_names(store: Store, names: Sequence[str]) -> None:
    """Raise an error for a name of a missing file."""
    for name in names:
        try:
            store.conversation(name)
        except UnknownConversation:
            if not Path(name).suffix and os.sep not in name:
                raise
            raise InvalidInput(
                f"Neither a file nor a conversation of the store has the name {name!r}",
                fix="Check the path, or run `contextc list` for the conversations.",
            ) from None


def _import_files(store: Store, files: list[str], format: str | None) -> FindingsInput:
    places: dict[tuple[str, str, int], str] = {}

    def add_place(where: str, seen: ObservedRequest) -> None:
        places[seen.conversation, channel_id(seen.channel), seen.request] = where

    try:
        with progress_bar("importing") as report:
            notes = import_named_files(store, files, format, report, add_place)
    except InvalidInput as error:
        if error.case != "unknown-file":
            raise
        raise InvalidInput(error.problem, fix=FILE_FIX) from error
    for note in notes:
        err.print(escape_markup(note), soft_wrap=True)
    conversations = [each.name for each in store.conversations()]
    names = _choose_names(places, conversations)
    placed = {(names.get(name, name), channel, number): where for (name, channel, number), where in places.items()}
    return FindingsInput(store, conversations, placed, names)


def _choose_names(places: dict[tuple[str, str, int], str], conversations: Sequence[str]) -> dict[str, str]:
    """Return names after the files, in the order of the requests, in place of names that differ at each call."""
    stems = {
        name: to_name(Path(where.rpartition(", ")[0]).stem) or "file" for (name, *_), where in reversed(places.items())
    }
    found: dict[str, str] = {}
    taken = {each for each in conversations if not GENERATED_NAME.search(each)}
    for name in dict.fromkeys([name for name, *_ in places]):
        if name in taken:
            continue
        is_single = list(stems.values()).count(stems[name]) == 1
        numbered = (f"{stems[name]}-{number}" for number in range(1, len(places) + len(taken) + 2))
        choices = [stems[name], *numbered] if is_single else numbered
        found[name] = next(each for each in choices if each not in taken)
        taken.add(found[name])
    return found
