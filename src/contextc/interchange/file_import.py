"""Import of files of other programs. Their kind is recognised by their content.

Each conversation is one transaction. So an interrupted import leaves only complete conversations, and a second import
of the file continues it. A conversation that cannot be imported is reported, and the others are imported. If reading or
storing fails in the middle, the summary lists what was stored before.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from time import monotonic
from typing import NamedTuple, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from contextc._json import JSON, JSONObject, encode
from contextc.compiler.past_requests import split_at_conversation
from contextc.errors import (
    ContextcError,
    InvalidImport,
    InvalidInput,
    InvalidSetting,
    StoreCorrupt,
    StoreError,
    UnknownConversation,
)
from contextc.formats import formatter
from contextc.interchange.contextc_jsonl import Progress, import_lines
from contextc.interchange.found_conversation import (
    DEFAULT_NAME,
    AgentLink,
    FoundConversation,
    ModelCall,
    make_origin,
    origin_meta,
    to_name,
)
from contextc.interchange.input_files import ImportInput, InputFile
from contextc.interchange.log_import import LoggedConversation, LoggedExchanges, LogImporter, OnRequest, parse_exchange
from contextc.interchange.packed_files import unpacked
from contextc.interchange.request_import_export import has_content, import_requests
from contextc.interchange.sources import (
    LogSource,
    TranscriptFile,
    load_session_source,
    load_source,
    session_source_names,
    source_names,
)
from contextc.interchange.write_imported import NameChoice, PrefixIndex, WriteResult, count_messages, write_conversation
from contextc.linting.request_reading import read_requests
from contextc.messages import Message, Usage, decode_message, first_user_text
from contextc.observation.client_ids import ClientIds
from contextc.observation.conversation_finder import (
    ConversationMatch,
    find_by_key,
    find_exchange,
    last_request,
    make_key,
    save_thread,
)
from contextc.observation.exchange_parser import (
    ElementCache,
    ObservedInput,
    ObservedReply,
    parse_elements,
    resolve_provider,
)
from contextc.observation.observed_request import RecordOptions, StoredMessages
from contextc.observation.write_observed import ExchangeRecording, record_exchanges
from contextc.store import Conversation, Store
from contextc.store.conversation_list import IMPORTED, set_directory
from contextc.store.message_log import SEQ_BITS, SEQ_MASK, find_tip, load_tip, make_place
from contextc.store.transaction_engine import Transaction

# ── model calls of a session ──────────────────────────────────────────────────────────────────────────────────────────
# Recording of the model calls of an imported session, whose messages are in the store already.
#
# A transcript has no bodies. Each is put together from the messages so far, and marked as inexact.


BATCH_SIZE = 64


def record_calls(
    store: Store, conversation: str, calls: Sequence[ModelCall], lines: Mapping[int, tuple[list[Message], list[int]]]
) -> int:
    """Record the calls that are not recorded yet, many in one transaction, and return their number.

    `lines` has the messages of each line of the conversation and their places; a message that was left out is at 0.
    """
    found = store.read(lambda tx: [find_exchange(tx, _call_key(conversation, call)) for call in calls])
    new = [
        call
        for call, known in zip(calls, found, strict=True)
        if known is None or (call.finished and known[1].observed is not None and known[1].observed.status != "ok")
    ]
    redacted = store.read(lambda tx: _find_redacted(tx, lines)) if new else frozenset[int]()
    elements = ElementCache()
    for start in range(0, len(new), BATCH_SIZE):
        record_exchanges(
            store,
            [_prepare_calls(conversation, call, lines, redacted, elements) for call in new[start : start + BATCH_SIZE]],
        )
    return found.count(None)


def _prepare_calls(
    conversation: str,
    call: ModelCall,
    lines: Mapping[int, tuple[list[Message], list[int]]],
    redacted: frozenset[int],
    elements: ElementCache,
) -> ExchangeRecording:
    messages, places = lines[call.line]
    own = [(start, index) for start, index in call.messages if places[index]]
    stored = StoredMessages(
        messages=[messages[index] for _, index in own],
        starts=[start for start, _ in own],
        places=[places[index] for _, index in own],
        replies=[(places[index], messages[index]) for index in call.reply if places[index]],
        redacted=redacted,
    )
    return ExchangeRecording(
        _make_input(call, elements),
        ObservedReply(status="ok" if call.finished else "unfinished", usage=call.usage),
        conversation,
        began=call.began,
        ended=call.ended,
        options=RecordOptions(key=f"{conversation}/{call.id}", inexact=True, stored=stored),
    )


def _call_key(conversation: str, call: ModelCall) -> bytes:
    return make_key("exchange", "", f"{conversation}/{call.id}")


def _find_redacted(tx: Transaction, lines: Mapping[int, tuple[list[Message], list[int]]]) -> frozenset[int]:
    branches = {place >> SEQ_BITS for _, places in lines.values() for place in places if place}
    return frozenset(
        [
            place
            for branch in sorted(branches)
            for (place,) in tx.rows(
                "SELECT place FROM main.message WHERE place BETWEEN ? AND ? AND redacted <> 0",
                make_place(branch, 0),
                make_place(branch, SEQ_MASK),
            )
        ]
    )


def link_agent(store: Store, conversation: str, client: str, link: AgentLink, caller: str) -> None:
    """Store that a conversation is that of a sub-agent, and the request of its caller whose reply started it."""

    def work(tx: Transaction) -> None:
        at, parent = find_tip(tx, conversation, False), find_tip(tx, caller, False) if caller else None
        if at is None:
            return
        place = 0
        if parent is not None:
            known = find_by_key(tx, make_key("exchange", "", f"{caller}/{link.call}")) if link.call else []
            place = known[0][2] if known else last_request(tx, caller)
        match = ConversationMatch("", "agent", parent.conversation if parent is not None else 0, place)
        save_thread(tx, at.conversation, client, f"{IMPORTED}{link.session}", link.agent, match)

    store.write(work, repeatable=True)


def _make_input(call: ModelCall, elements: ElementCache) -> ObservedInput:
    form = formatter(call.format)
    known = list(call.elements) if call.messages else []  # without stored messages, text could not be redacted
    facts: JSONObject = {"model": call.model, **call.head}
    parts = split_at_conversation(encode({**facts, form.messages_key: [0]}), form.messages_key)
    return ObservedInput(
        body=b"",
        json=facts,
        form=form,
        provider=resolve_provider(call.provider, call.model, form.name),
        provider_name=call.provider,
        model=call.model,
        ids=ClientIds(),
        head=parts.head if parts is not None else b"{}",
        gaps=(),
        parsed=parse_elements(known, elements),
        is_split=True,
    )


# ── files ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


TITLE_LENGTH = 80
OWN_LINE_FIELDS = {
    "contextc": "version",
    "message": "message",
    "blob": "name",
    "todos": "todos",
    "tags": "tags",
    "note": "time",
}
NO_MESSAGES = "a conversation without messages"
RESPONSES_ITEM_TYPES = ("message", "function_call", "function_call_output", "reasoning")
JSON_ENDINGS = (".json", ".jsonl", ".har")
MAX_SORTED_BYTES = 64 << 20
"""Size of files up to which the exchanges of a log are sorted by time, which takes memory."""
NOTHING_IMPORTED = " Nothing was imported."
EMPTY_USAGE = Usage()


class ImportedConversation(Struct, frozen=True, kw_only=True):
    """The outcome for one conversation of a file. `messages` counts all branches in the store, `length` the current
    one, `new` the messages that the import added. `requests` counts the model calls in the file. `error` is the reason
    if it was not imported. Tokens are those that models reported, None if they reported none.
    """

    name: str
    title: str
    messages: int = 0
    length: int = 0
    new: int = 0
    tool_calls: int = 0
    branches: int = 0
    input_tokens: int | None = None
    output_tokens: int | None = None
    requests: int = 0
    new_requests: int = 0
    tip: str = ""
    error: str | None = None


class ImportSummary(Struct, frozen=True, kw_only=True):
    """The outcome of an import. `left_out` lists omitted content with reason and count. `stopped` is the reason if the
    import ended early; the listed conversations are stored.
    """

    source: str
    conversations: tuple[ImportedConversation, ...]
    left_out: tuple[str, ...]
    seconds: float
    stopped: str | None = None

    @property
    def refused(self) -> int:
        """The number of conversations that could not be imported."""
        return sum(each.error is not None for each in self.conversations)

    def total(self, field: str) -> int:
        """Return the sum of a field over all conversations."""
        return sum(getattr(each, field) or 0 for each in self.conversations)

    def totals(self) -> ImportedConversation:
        """Return the sums of all fields, in the form of one conversation."""
        known = any(each.input_tokens is not None for each in self.conversations)
        return ImportedConversation(
            name="in all",
            title="",
            messages=self.total("messages"),
            length=self.total("length"),
            new=self.total("new"),
            tool_calls=self.total("tool_calls"),
            branches=self.total("branches"),
            input_tokens=self.total("input_tokens") if known else None,
            output_tokens=self.total("output_tokens") if known else None,
            requests=self.total("requests"),
            new_requests=self.total("new_requests"),
        )


def is_own_format(file: InputFile) -> bool:
    """Return True if a file is an export of `export_lines`, holds plain messages, or is empty."""
    sample = file.sample()
    first: JSON = next(iter(sample.values), None)
    if not isinstance(first, dict):
        return sample.shape == "none" and next(file.lines(), None) is None
    line = cast(JSONObject, first)
    if OWN_LINE_FIELDS.get(str(line.get("type")), "type") in line and line.get("type") in OWN_LINE_FIELDS:
        return True
    try:
        decode_message(encode(line))
    except msgspec.ValidationError:
        return False
    return "seq" in line or "id" not in line


def is_plain_requests(file: InputFile, format: str) -> bool:
    """Return True if a file holds requests of a format without envelopes and replies."""
    first: JSON = next(iter(file.sample().values), None)
    if not isinstance(first, dict):
        return True
    found, key = parse_exchange(first), formatter(format).messages_key
    return (key in first or "role" in first) and (found is None or found.reply is None)


def detect_source(file: InputFile) -> str | None:
    """Return the source of a file, recognised by its content; None if it is unknown."""
    sample = file.sample()
    names = [name for name in source_names() if load_source(name).matches(sample)]
    if len(names) > 1:
        raise InvalidSetting(
            f"{file.name} matches several sources: {', '.join(names)}",
            fix=f"Pass source_name={names[0]!r}, or another of them.",
            case="source",
            detail=names[0],
        )
    return names[0] if names else None


def import_files(
    store: Store,
    paths: Sequence[str | Path | InputFile],
    *,
    source_name: str | None = None,
    format: str | None = None,
    into: str | None = None,
    progress: Progress | None = None,
    on_request: OnRequest | None = None,
) -> ImportSummary:
    """Import every conversation of these files, which belong together. Without `source_name`, the source is recognised.

    A conversation is named after its source and its id there, or after `into`. An invalid file raises. An invalid
    conversation among several is reported in the summary. `on_request` gets the place of each request of a log, such as
    "log.jsonl, line 2", and what was recorded.
    """
    given = [each if isinstance(each, InputFile) else InputFile(Path(each), progress=progress) for each in paths]
    with unpacked(given) as files:
        return _import_unpacked(store, files, source_name, format, into, progress, on_request)


def _import_unpacked(
    store: Store,
    files: Sequence[InputFile],
    source_name: str | None,
    format: str | None,
    into: str | None,
    progress: Progress | None,
    on_request: OnRequest | None,
) -> ImportSummary:
    began = monotonic()
    name = (source_name or _detect_common_source(files)).replace("_", "-")
    kind = load_source(name)
    for file in files if source_name is not None else ():
        _check_database(file, name)
    if isinstance(kind, LogSource):
        return _import_log(store, kind, name, ImportInput(files, format, progress), into, began, on_request)
    taking = _ImportRun(store, name, into, progress)
    stopped: ContextcError | None = None
    try:
        for found in kind.read_conversations(ImportInput(files, format, progress)):
            taking.import_conversation(found)
    except (StoreError, InvalidInput) as error:
        if not taking.has_stored:
            raise
        stopped = error
    taking.left_out.update(note for file in files for note in file.notes)
    if len(taking.outcomes) == len(taking.errors) == 1 and stopped is None:
        raise taking.errors[0]
    if not taking.outcomes:
        raise InvalidInput(_no_conversation_text(files, name, taking.left_out))
    return ImportSummary(
        source=name,
        conversations=tuple(taking.outcomes),
        left_out=_count_notes(taking.left_out),
        seconds=monotonic() - began,
        stopped=str(stopped).removesuffix(NOTHING_IMPORTED) if stopped is not None else None,
    )


def import_any(
    store: Store,
    files: Sequence[InputFile],
    *,
    source_name: str | None = None,
    format: str | None = None,
    into: str | None = None,
    progress: Progress | None = None,
    on_request: OnRequest | None = None,
) -> ImportSummary | tuple[list[Conversation], list[str]]:
    """Import an export of contextc, requests of a provider, or files of another program, by their content.

    Return a summary; for an export or requests, the conversations and the warnings. Packed files are unpacked. What is
    in an archive need not belong together.
    """
    with unpacked(files) as found:
        if len(files) == 1 < len(found):
            return _import_each(store, files[0], found, source_name, format, progress, on_request)
        return _import_found(store, found, source_name, format, into, progress, on_request)


def _import_each(
    store: Store,
    archive: InputFile,
    files: Sequence[InputFile],
    source_name: str | None,
    format: str | None,
    progress: Progress | None,
    on_request: OnRequest | None,
) -> ImportSummary:
    """Import the files of an archive: those of one source together, and the others one by one. What is not recognised
    is left out; if nothing is, the error for the first of them is raised.
    """
    began, problems = monotonic(), dict[str, ContextcError]()
    groups = dict[str, list[InputFile]]()
    for file in files:
        try:
            kind = None if is_own_format(file) else detect_source(file)
        except ContextcError as error:
            problems[file.name] = error
            continue
        groups.setdefault(kind or file.name, []).append(file)
    sources, outcomes, left_out = list[str](), list[ImportedConversation](), list[str]()
    for some in groups.values():
        try:
            taken = _import_found(store, some, source_name, format, None, progress, on_request)
        except InvalidInput as error:
            problems[some[0].name] = error
            continue
        if isinstance(taken, ImportSummary):
            sources.append(taken.source)
            outcomes += taken.conversations
            left_out += taken.left_out
        else:
            sources.append("export")
            outcomes += [_outcome_of(each) for each in taken[0]]
            left_out += taken[1]
    if not outcomes:
        raise next(iter(problems.values()), None) or InvalidInput(f"{archive.name} has no conversation.")
    return ImportSummary(
        source=", ".join(dict.fromkeys(sources)),
        conversations=tuple(outcomes),
        left_out=(*left_out, *[str(error) for error in problems.values()]),
        seconds=monotonic() - began,
    )


def _outcome_of(conversation: Conversation) -> ImportedConversation:
    """Return the outcome for an export or for requests that were imported."""
    return ImportedConversation(
        name=conversation.name,
        title="",
        messages=conversation.length,
        length=conversation.length,
        new=conversation.length,
        branches=1,
        tip=conversation.tip,
    )


def _import_found(
    store: Store,
    files: Sequence[InputFile],
    source_name: str | None,
    format: str | None,
    into: str | None,
    progress: Progress | None,
    on_request: OnRequest | None,
) -> ImportSummary | tuple[list[Conversation], list[str]]:
    if source_name is None and len(files) == 1:
        (file,) = files
        if format is not None and (detect_source(file) is None or is_plain_requests(file, format)):
            bodies = read_requests(file.read(), format).by_name(into or file.stem)
            taken = import_requests(store, bodies, format=format, progress=progress)
            return [each.conversation for each in taken], [warning for each in taken for warning in each.warnings]
        if is_own_format(file):
            before = _length(store, into)
            count = f"{before:,} message" if before == 1 else f"{before:,} messages"
            notes = [f"{into} already exists: appended after its {count}"] if before else []
            try:
                return [import_lines(store, file.read().splitlines(), into, progress)], notes
            except InvalidImport as error:
                raise InvalidInput(f"{file.name}, {error.problem}", fix=error.fix, case=error.case) from error
    return import_files(
        store, files, source_name=source_name, format=format, into=into, progress=progress, on_request=on_request
    )


def _length(store: Store, name: str | None) -> int:
    try:
        return store.conversation(name).length if name else 0
    except UnknownConversation:
        return 0


def _import_log(
    store: Store,
    kind: LogSource,
    name: str,
    given: ImportInput,
    into: str | None,
    began: float,
    on_request: OnRequest | None,
) -> ImportSummary:
    """Record every exchange of these files."""
    for file in given.files:
        file.check_lines()
    recorder = LogImporter(store, name, into=into, format=given.format, on_request=on_request)
    stopped: ContextcError | None = None
    try:
        for where, exchange in _in_order(given.files, kind.read_log(given)):
            recorder.add_exchange(where, exchange)
        recorder.close()
    except (StoreError, InvalidInput) as error:
        if not recorder.has_stored:
            raise
        stopped = error
    found = list(recorder.conversations.values())
    if len(found) == 1 and found[0].error is not None and stopped is None:
        raise found[0].error
    left_out = Counter([*recorder.notes(), *(note for file in given.files for note in file.notes)])
    if not found:
        raise InvalidInput(_no_conversation_text(given.files, name, left_out))
    return ImportSummary(
        source=name,
        conversations=tuple([_logged_outcome(store, each) for each in found]),
        left_out=_count_notes(left_out),
        seconds=monotonic() - began,
        stopped=str(stopped).removesuffix(NOTHING_IMPORTED) if stopped is not None else None,
    )


def _in_order(files: Sequence[InputFile], logged: LoggedExchanges) -> LoggedExchanges:
    """Return exchanges in the order of their times. A large log, or one without times, stays in its own order."""
    if sum(file.size for file in files) > MAX_SORTED_BYTES:
        return logged
    found = list(logged)
    timed = [exchange for _, exchange in found if exchange is not None and exchange.body is not None]
    if not all(exchange.time for exchange in timed):
        return found
    return sorted(found, key=lambda each: each[1].time if each[1] is not None and each[1].body is not None else 0)


def _logged_outcome(store: Store, found: LoggedConversation) -> ImportedConversation:
    if found.error is not None:
        return ImportedConversation(name=found.name, title="", error=str(found.error))
    now, branches = store.conversation(found.name), store.branches(found.name)
    own: list[Message] = []
    for branch in branches:
        try:
            line = store.load(found.name, branch=branch.number)
        except StoreCorrupt:
            continue
        own += [message for message in line if message.seq > branch.base]
    texts = (message.text for message in own if message.role == "user" and message.text.strip())
    return ImportedConversation(
        name=found.name,
        title=" ".join(next(texts, "").split())[:TITLE_LENGTH],
        messages=count_messages(branches),
        length=now.length,
        new=found.new,
        tool_calls=sum(len(message.tool_calls) for message in own),
        branches=len(branches),
        input_tokens=found.input,
        output_tokens=found.output,
        requests=found.requests,
        new_requests=found.new_requests,
        tip=now.tip,
    )


def _count_notes(left_out: Counter[str]) -> tuple[str, ...]:
    return tuple(note if count == 1 else f"{note} ({count:,} times)" for note, count in left_out.items())


class _ImportRun:
    """An import in progress: stores the conversations one by one."""

    def __init__(self, store: Store, name: str, into: str | None, progress: Progress | None) -> None:
        self.store, self.name, self.into, self.progress = store, name, into, progress
        self.similar = PrefixIndex(store, name)
        self.outcomes: list[ImportedConversation] = []
        self.errors: list[ContextcError] = []
        self.left_out: Counter[str] = Counter()
        self.agents: dict[tuple[str, str], str] = {}
        """The stored conversations of this run, by session and sub-agent."""

    @property
    def has_stored(self) -> bool:
        return len(self.outcomes) > len(self.errors)

    def import_conversation(self, found: FoundConversation) -> None:
        self.left_out.update(found.left_out)
        lines, blank = _without_empty_messages(found)
        self.left_out.update({"a message without content": blank} if blank else {})
        if not lines and not found.error:
            self.left_out.update([NO_MESSAGES] if found.id else [])
            return
        name_choice = self._name_choice(found)
        try:
            if found.error:
                raise InvalidInput(found.error)
            origin = make_origin(self.name, found)
            marked = _with_origin(lines, origin_meta(origin, found.title))
            placed = write_conversation(
                self.store, name_choice, origin, marked, similar=self.similar, progress=self.progress
            )
            new_calls = self._record_calls(found, marked, placed)
            if found.directory:
                _save_directory(self.store, placed.conversation.name, found.directory)
            if found.agent is not None:
                caller = self.agents.get((found.agent.session, found.agent.caller), "")
                link_agent(self.store, placed.conversation.name, self.name, found.agent, caller)
            session = (found.agent.session, found.agent.agent) if found.agent is not None else (found.id, "")
            self.agents[session] = placed.conversation.name
            self.outcomes.append(_conversation_outcome(replace(found, lines=marked), placed, new_calls))
        except ContextcError as error:
            if isinstance(error, StoreError) and not isinstance(error, StoreCorrupt):
                raise
            self.errors.append(error)
            self.outcomes.append(
                ImportedConversation(name=name_choice.default, title=_conversation_title(found), error=str(error))
            )

    def _record_calls(self, found: FoundConversation, lines: list[list[Message]], placed: WriteResult) -> int:
        """Record the model calls of a session."""
        if not found.calls:
            return 0
        stored: dict[int, tuple[list[Message], list[int]]] = {}
        written = iter(zip(lines, placed.places, strict=True))
        for number, line in enumerate(found.lines):
            kept = [index for index, message in enumerate(line) if _is_filled(message)]
            own, places = next(written) if kept else ([], ())
            at = dict(zip(kept, zip(own, places, strict=True), strict=True)) if len(places) == len(kept) else {}
            messages = [at[index][0] if index in at else message for index, message in enumerate(line)]
            stored[number] = messages, [at[index][1] if index in at else 0 for index in range(len(line))]
        stored[-1] = stored[len(found.lines) - 1]
        return record_calls(self.store, placed.conversation.name, found.calls, stored)

    def _name_choice(self, found: FoundConversation) -> NameChoice:
        """Return the names for a conversation: the first one gets `into`, the others `into` and their id."""
        is_first = self.into is not None and not self.outcomes
        id = to_name(found.id) or DEFAULT_NAME
        plain = self.into if self.into is not None and is_first else f"{self.into or self.name}-{id}"
        return NameChoice(plain, is_first, frozenset(each.name for each in self.outcomes if each.error is None))


def _save_directory(store: Store, conversation: str, directory: str) -> None:
    store.write(lambda tx: set_directory(tx, load_tip(tx, conversation).conversation, directory), repeatable=True)


def _check_database(file: InputFile, name: str) -> None:
    """Raise InvalidInput if the tables of a database show another source than the given one."""
    sample = file.sample()
    if sample.shape != "database" or load_source(name).matches(sample):
        return
    source = detect_source(file)
    tables = ", ".join(sorted(sample.tables)[:5]) or "none"
    problem = f"{file.name} has no conversation when read as {name}"
    if source is None:
        raise InvalidInput(f"{problem}: its tables are of another program ({tables}).")
    raise InvalidInput(problem, fix=f"Pass source_name={source!r}.", case="wrong-source", detail=source)


def _detect_common_source(files: Sequence[InputFile]) -> str:
    kinds = {file.name: detect_source(file) for file in files}
    known = {kind for kind in kinds.values() if kind is not None}
    strange = [name for name, kind in kinds.items() if kind is None]
    if strange:
        file = next(each for each in files if each.name == strange[0])
        raise _unrecognised_error(file)
    if len(known) > 1:
        raise InvalidSetting(
            f"The files are of different sources: {', '.join(sorted(known))}",
            fix="Import the files of each separately.",
        )
    return known.pop()


def _unrecognised_error(file: InputFile) -> InvalidInput:
    """Return the error for a file that is of no known source."""
    objects = file.sample().objects
    first = objects[0] if objects else JSONObject()
    format = (
        "openai_responses" if first.get("type") in RESPONSES_ITEM_TYPES else "openai_chat" if "role" in first else ""
    )
    if not format:
        names = ", ".join(source_names())
        fix = f"Pass source_name if it is one of {names}. Read requests of a provider with import_requests()."
        problem = f"{file.name}: the kind of file cannot be recognised"
        if not objects and file.name.endswith(JSON_ENDINGS):
            problem += "; its content is not JSON, or not an object or a list of objects"
        return InvalidInput(problem, fix=fix, case="unknown-file", detail=names)
    what = "items of OpenAI's Responses API" if first.get("type") in RESPONSES_ITEM_TYPES else "messages of a provider"
    return InvalidInput(
        f"{file.name}: the file holds {what}, and no format is given",
        fix=f"Read them with import_requests(), as in format={format!r}.",
        case="unknown-format",
        detail=format,
    )


def _without_empty_messages(found: FoundConversation) -> tuple[list[list[Message]], int]:
    """Return the lines without empty messages, and the number of those. Empty usage is removed."""
    checked: dict[int, Message | None] = {}
    for message in (message for line in found.lines for message in line):
        if id(message) not in checked:
            kept = replace(message, usage=None) if message.usage == EMPTY_USAGE else message
            checked[id(message)] = kept if _is_filled(message) else None
    lines = [[kept for message in line if (kept := checked[id(message)]) is not None] for line in found.lines]
    return [line for line in lines if line], sum(kept is None for kept in checked.values())


def _is_filled(message: Message) -> bool:
    return (not message.text.isspace() and message.text != "") or has_content(message)


def _with_origin(lines: list[list[Message]], origin: JSONObject) -> list[list[Message]]:
    """Return the lines with their origin in the `meta` of the first message."""
    firsts: dict[int, Message] = {}
    for line in lines:
        first = line[0]
        firsts.setdefault(id(first), replace(first, meta={**(first.meta or {}), **origin}))
    return [[firsts[id(line[0])], *line[1:]] for line in lines]


def _conversation_outcome(found: FoundConversation, placed: WriteResult, new_calls: int) -> ImportedConversation:
    messages = list({id(message): message for line in found.lines for message in line}.values())
    known = [each.usage for each in found.calls or messages if each.usage is not None]
    return ImportedConversation(
        name=placed.conversation.name,
        title=_conversation_title(found),
        messages=placed.messages,
        length=placed.conversation.length,
        new=placed.added,
        tool_calls=sum(len(message.tool_calls) for message in messages),
        branches=placed.branches,
        input_tokens=sum(usage.input for usage in known) if known else None,
        output_tokens=sum(usage.output for usage in known) if known else None,
        requests=len(found.calls),
        new_requests=new_calls,
        tip=placed.conversation.tip,
    )


def _conversation_title(found: FoundConversation) -> str:
    return " ".join((found.title or first_user_text(chain.from_iterable(found.lines))).split())[:TITLE_LENGTH]


def _no_conversation_text(files: Sequence[InputFile], name: str, left_out: Counter[str]) -> str:
    if list(left_out.items()) == [(NO_MESSAGES, 1)]:
        return f"{files[0].name}, read as {name}: the session has no message."
    why = "; ".join(f"left out: {note}" for note in left_out)
    return f"{files[0].name} has no conversation when read as {name}.{f' {why}.' if why else ''}"


# ── sessions that other programs keep ─────────────────────────────────────────────────────────────────────────────────
# Import of sessions of other programs, such as Claude Code and Codex, as conversations.
#
# All messages are stored, calls and results included, and the conversation can continue with any provider. The
# program's own files are never written. A second import adds the new messages. If the conversation was continued here
# in the meantime, the import is refused. Another name for the conversation solves that.


DEFAULT_LIMIT = 20


class ListedSession(Struct, frozen=True, kw_only=True):
    """A session in a list. `time` is its last change in Unix milliseconds. `title` is its name or first text."""

    source: str
    id: str
    time: int
    messages: int
    title: str
    directory: str
    path: str


class ImportedSession(NamedTuple):
    """The conversation after an import, the number of new messages, and the content that was left out."""

    conversation: Conversation
    added: int
    warnings: list[str]


def list_sessions(
    source_name: str, *, directory: str | None = ".", limit: int | None = DEFAULT_LIMIT
) -> tuple[list[ListedSession], int]:
    """Return the sessions of a program in a directory (None: in all), newest first, and the number of further ones.

    Sessions without messages are left out.
    """
    listed: list[ListedSession] = []
    ordered = _list_newest(source_name, directory)
    for index, each in enumerate(ordered):
        if limit is not None and len(listed) == limit:
            return listed, len(ordered) - index
        try:
            read = _read_session(source_name, each)
        except ContextcError as error:
            listed.append(_list_session(source_name, each, 0, f"cannot be read: {error}"))
            continue
        if messages := [message for message in read.lines[-1] if has_content(message)] if read is not None else []:
            title = (read.title if read else "") or " ".join(first_user_text(messages).split())[:TITLE_LENGTH]
            listed.append(_list_session(source_name, each, len(messages), title))
    return listed, 0


def find_session_file(source_name: str, session: str | None = None, *, directory: str | None = ".") -> Path:
    """Return the file of a session, by its id or a prefix; without one, the last of a directory (None: of all)."""
    return (_find_last(source_name, directory) if session is None else _find_by_id(source_name, session)).path


def import_session(
    store: Store, source_name: str, session: str | None = None, *, directory: str | None = ".", into: str | None = None
) -> ImportedSession:
    """Import a session of a program by its id or a prefix; without one, the last of a directory (None: of all).

    `into` is the name of the conversation. By default, it is derived from the session.
    """
    return _import_session(
        store, InputFile(find_session_file(source_name, session, directory=directory)), source_name, into
    )


def import_transcript(
    store: Store, data: bytes, *, path: Path | None = None, source_name: str | None = None, into: str | None = None
) -> ImportedSession:
    """Import the bytes of a transcript completely or not at all. Without `source_name`, the program is recognised."""
    file = InputFile(path, data)
    source_name = source_name or detect_source(file)
    if source_name not in session_source_names():
        raise InvalidInput(f"The data is not a transcript of {' or '.join(session_source_names())}.")
    return _import_session(store, file, source_name, into)


def _import_session(store: Store, file: InputFile, name: str, into: str | None) -> ImportedSession:
    summary = import_files(store, [file], source_name=name, into=into)
    taken = summary.conversations[0]  # the others are sub-agents
    if taken.error is not None:
        raise InvalidInput(taken.error)
    return ImportedSession(
        store.conversation(taken.name), taken.new, [f"left out: {note}" for note in summary.left_out]
    )


def _list_session(name: str, found: TranscriptFile, messages: int, title: str) -> ListedSession:
    return ListedSession(
        source=name,
        id=found.id,
        time=found.time,
        messages=messages,
        title=title,
        directory=found.directory,
        path=str(found.path),
    )


def _read_session(name: str, found: TranscriptFile) -> FoundConversation | None:
    """Return the content of a transcript on this machine; None if the file is not one."""
    if not found.path.is_file():
        return None
    file = InputFile(found.path)
    kind = load_source(name)
    read = next(iter(kind.read_conversations(ImportInput([file]))), None) if kind.matches(file.sample()) else None
    if read is not None and read.error:
        raise InvalidInput(read.error)
    return read


def _list_newest(name: str, directory: str | None) -> list[TranscriptFile]:
    found: Iterator[TranscriptFile] = load_session_source(name).find_transcripts(directory)
    return sorted(found, key=lambda each: (each.time, each.id), reverse=True)


def _find_last(name: str, directory: str | None) -> TranscriptFile:
    for each in _list_newest(name, directory):
        read = _read_session(name, each)
        if read is not None and any(map(has_content, read.lines[-1])):
            return each
    where = "on this machine" if directory is None else f"in {Path(directory).absolute()}"
    raise InvalidInput(
        f"No session of {name} found {where}",
        fix="Pass another directory, or None to search in all directories.",
        case="no-session",
    )


def _find_by_id(name: str, session: str) -> TranscriptFile:
    ordered = _list_newest(name, None)
    found = [each for each in ordered if session and each.id.startswith(session.lower())]
    exact = [each for each in found if each.id == session.lower()]
    if len(exact or found) == 1:
        return (exact or found)[0]
    if not found:
        raise InvalidInput(
            f"{name} has no session {session!r} on this machine",
            fix="Call `list_sessions(directory=None)` to list its sessions.",
            case="unknown-session",
            detail=name,
        )
    which = ", ".join(each.id for each in found[:5])
    raise InvalidInput(
        f"{session!r} matches {len(found)} sessions of {name}: {which}", fix="Pass more characters of the id."
    )
