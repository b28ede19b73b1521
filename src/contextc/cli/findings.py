"""`contextc findings`: why the cache missed, what fills the window, what failed, and what it cost."""

import os
import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from contextc.cli.command_line import Argument, Exit, Option
from contextc.cli.console import FormatOption, JSONOption, SarifOption, err, escape_markup, print_json, progress_bar
from contextc.cli.import_ import import_named_files
from contextc.cli.inputs import StoreOption, open_configured_store
from contextc.errors import InvalidInput, InvalidSetting, UnknownConversation
from contextc.interchange.found_conversation import to_name
from contextc.observation.observed_request import ObservedRequest
from contextc.store import Store, open_store
from contextc.store.ledger_schema import channel_id

if TYPE_CHECKING:
    from contextc.analysis import ConversationCacheReads, ConversationCosts, Evidence, Finding, WhatIf


MAX_ROWS = 30


def run(
    names: Annotated[
        list[str] | None,
        Argument(
            metavar="[CONVERSATION | FILE]...",
            help="Conversations of the store; or files that `contextc import` reads, such as a request log or a HAR"
            " recording (default: the whole store, by cause).",
            show_default=False,
        ),
    ] = None,
    costs: Annotated[
        bool, Option("--costs", help="Print what was spent for: system prompt, each tool, history, answers …")
    ] = False,
    cache: Annotated[
        bool, Option("--cache", help="Print what each request should have read from the cache, and what it read.")
    ] = False,
    what_if: Annotated[
        bool, Option("--what-if", help="Print what the requests would have cost in other ways, by a replay.")
    ] = False,
    compact_at: Annotated[
        int | None,
        Option("--compact-at", metavar="TOKENS", min=1_000, help="With --what-if: when to compact."),
    ] = None,
    threshold: Annotated[
        float | None,
        Option(
            "--threshold",
            metavar="DOLLARS",
            min=0.0,
            help="Exit code 1 if all findings of one cause in a conversation (without arguments: in the store) cost"
            " more.",
        ),
    ] = None,
    limit: Annotated[int, Option("--limit", min=1, help="The number of rows to print.")] = MAX_ROWS,
    format: FormatOption = None,
    store: StoreOption = None,
    json: JSONOption = False,
    sarif: SarifOption = False,
) -> None:
    """Show what a conversation wastes or fails at, the most expensive first, and how to fix it."""
    if json and sarif:
        raise InvalidSetting("--json and --sarif cannot be used together", fix="Pass one of them.")
    if compact_at is not None and not what_if:
        raise InvalidSetting("--compact-at needs --what-if", fix="Add --what-if.")
    from contextc import analysis  # it takes time to import
    from contextc.analysis import cache_reads, conversation_costs, store_findings
    from contextc.analysis.conversation_findings import largest_cause_cost
    from contextc.analysis.finding import sort_by_cost
    from contextc.cli.findings_report import (
        findings_sarif,
        print_all_costs,
        print_all_replays,
        print_cache_reads,
        print_causes,
        print_findings,
    )

    collected: list[Finding] = []
    with open_input(names or [], format, store) as given:
        handle, chosen = given.store, given.conversations
        with progress_bar("analysing") as report:
            summary = store_findings(handle, chosen, progress=report, on_findings=collected.extend)
        listed = chosen if chosen is not None else [each.name for each in handle.conversations()]
        readable = [each for each in listed if each not in summary.unreadable] if costs or cache or what_if else []
        spent = [conversation_costs(handle, each) for each in readable] if costs else []
        reads = [cache_reads(handle, each) for each in readable] if cache else []
        replays = [analysis.what_if(handle, each, compact_at=compact_at) for each in readable] if what_if else []
    found = sort_by_cost([given.rename(each) for each in collected])
    spent, replays = [given.rename(each) for each in spent], [given.rename(each) for each in replays]
    reads = [given.rename(each) for each in reads]
    for name in summary.unreadable:
        err.print(escape_markup(f"not analysed: {name} cannot be read. See contextc doctor."), soft_wrap=True)
    if not summary.requests and not summary.unreadable:
        err.print("No recorded request to analyse: conversations and files without requests have no findings.")
    if sarif:
        print_json(findings_sarif(found))
    elif json:
        main = (
            {"causes": summary.causes}
            if chosen is None
            else {"findings": [_finding_json(each, given.place_of(each)) for each in found]}
        )
        more = {
            **({"costs": spent} if costs else {}),
            **({"cache": reads} if cache else {}),
            **({"what_if": replays} if what_if else {}),
        }
        print_json({**main, "unreadable": summary.unreadable, **more})
    else:
        if chosen is None:
            print_causes(summary, limit)
        else:
            print_findings(found, limit, several=len(chosen) > 1, place_of=given.place_of)
        print_all_costs(spent)
        print_cache_reads(reads, limit)
        print_all_replays(replays)
    largest = (
        max([each.cost or 0.0 for each in summary.causes], default=0.0) if chosen is None else largest_cause_cost(found)
    )
    if threshold is not None and largest > threshold:
        raise Exit(1)


def _finding_json(finding: "Finding", place: str) -> object:
    """Return a finding with its place in a file, such as "log.jsonl, line 2", if it is known."""
    return {**msgspec.to_builtins(finding), "place": place} if place else finding


# ── input ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
# The input of `contextc findings`: conversations of a store, or files that are imported into memory.


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
