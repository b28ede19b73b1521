"""Files of other programs taken in: what they are is seen from what is in them, and told at the end.

Each conversation is one transaction, so whatever happens in the middle there are whole conversations only, and
importing the same file again goes on. A conversation that cannot be taken is told, and does not keep the others out.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import monotonic
from typing import cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from contextc._json import JSON, JSONObject, encode
from contextc.errors import ContextcError, InvalidInput, InvalidSetting, StoreError
from contextc.formats import formatter
from contextc.messages import Message, from_json
from contextc.store import Store
from contextc.transfer.exchanges import exchange_in
from contextc.transfer.found import Found, as_name
from contextc.transfer.given import File, Given
from contextc.transfer.lines import Progress
from contextc.transfer.placing import place
from contextc.transfer.requests import says_something
from contextc.transfer.sources import source, source_names

FIRST_WORDS = 80
OWN_LINES = ("contextc", "message", "blob", "todos")
SILENT = "a conversation in which nothing was said"
ABOUT = "imported"
"""The name in the `meta` of a conversation's first message under which it says where it came from."""


class TakenIn(Struct, frozen=True, kw_only=True):
    """What became of one conversation of a file. `new` of its messages were not in the store; `error` is why it was not
    taken. Tokens are those that models reported; None where none did.
    """

    name: str
    title: str
    messages: int = 0
    new: int = 0
    tool_calls: int = 0
    branches: int = 0
    input_tokens: int | None = None
    output_tokens: int | None = None
    tip: str = ""
    error: str | None = None


class Summary(Struct, frozen=True, kw_only=True):
    """What became of everything that was given. `left_out` says what, why, and how often."""

    source: str
    conversations: tuple[TakenIn, ...]
    left_out: tuple[str, ...]
    seconds: float

    @property
    def refused(self) -> int:
        return sum(each.error is not None for each in self.conversations)

    def total(self, field: str) -> int:
        """The sum of a figure over all conversations."""
        return sum(getattr(each, field) or 0 for each in self.conversations)

    def in_all(self) -> TakenIn:
        """All figures, as of one conversation."""
        known = any(each.input_tokens is not None for each in self.conversations)
        return TakenIn(
            name="in all",
            title="",
            messages=self.total("messages"),
            new=self.total("new"),
            tool_calls=self.total("tool_calls"),
            branches=self.total("branches"),
            input_tokens=self.total("input_tokens") if known else None,
            output_tokens=self.total("output_tokens") if known else None,
        )


def is_own(file: File) -> bool:
    """Whether a file is one of ours: what `export_lines` wrote, or plain messages; or nothing at all."""
    sample = file.sample()
    first: JSON = next(iter(sample.values), None)
    if not isinstance(first, dict):
        return sample.shape in ("none", "list") and first is None
    line = cast(JSONObject, first)
    if line.get("type") in OWN_LINES:
        return True
    try:
        from_json(encode(line))
    except msgspec.ValidationError:
        return False
    return "seq" in line or "id" not in line


def holds_requests(file: File, format: str) -> bool:
    """Whether a file holds requests of a format and nothing around them, nor what came back."""
    first: JSON = next(iter(file.sample().values), None)
    if not isinstance(first, dict):
        return True
    found, key = exchange_in(first), formatter(format).messages_key
    return (key in first or "role" in first) and (found is None or found.reply is None)


def file_source(file: File) -> str | None:
    """The source that a file is of, by what is in it; None where it is none of those we know."""
    sample = file.sample()
    names = [name for name in source_names() if source(name).recognises(sample)]
    if len(names) > 1:
        raise InvalidSetting(f"{file.name} may be of {' or '.join(names)}. Say which: --from {names[0]}.")
    return names[0] if names else None


def import_files(
    store: Store,
    paths: Sequence[str | Path | File],
    *,
    source_name: str | None = None,
    format: str | None = None,
    into: str | None = None,
    progress: Progress | None = None,
) -> Summary:
    """Take in every conversation in these files, which belong together: of the source of that name, or of whichever.

    A conversation is named for its source and its id there, or for `into`. Raises what is wrong with a file; what is
    wrong with one conversation of several is told in the summary.
    """
    began = monotonic()
    files = [each if isinstance(each, File) else File(Path(each), progress=progress) for each in paths]
    name = source_name or _source_of(files)
    given = Given(files, format, progress)
    taken: list[TakenIn] = []
    left_out: Counter[str] = Counter()
    names: set[str] = set()
    refusals: list[ContextcError] = []
    for found in source(name).conversations(given):
        left_out.update(found.left_out)
        lines, blank = _said(found)
        left_out.update({"a message that says nothing": blank} if blank else {})
        if not lines:
            left_out[SILENT] += 1
            continue
        called = _name(name, found, into, names)
        try:
            taken.append(_take(store, called, replace(found, lines=_marked(lines, name, found)), progress))
        except StoreError:
            raise
        except ContextcError as error:
            refusals.append(error)
            taken.append(TakenIn(name=called, title=_title(found), error=str(error)))
    left_out.update(note for file in files for note in file.notes)
    if len(taken) == len(refusals) == 1:
        raise refusals[0]
    if not taken:
        raise InvalidInput(_nothing(files, name, left_out))
    notes = tuple(note if count == 1 else f"{note} ({count:,} times)" for note, count in left_out.items())
    return Summary(source=name, conversations=tuple(taken), left_out=notes, seconds=monotonic() - began)


def _source_of(files: Sequence[File]) -> str:
    kinds = {file.name: file_source(file) for file in files}
    known = {kind for kind in kinds.values() if kind is not None}
    strange = [name for name, kind in kinds.items() if kind is None]
    if strange:
        raise InvalidInput(
            f"{strange[0]}: what this file is cannot be seen from it. If it is one of {', '.join(source_names())}, say "
            "so with --from; requests of a provider are read with --format."
        )
    if len(known) > 1:
        raise InvalidSetting(f"These files are of {' and '.join(sorted(known))}. Import them one after the other.")
    return known.pop()


def _said(found: Found) -> tuple[list[list[Message]], int]:
    """The lines without the messages that say nothing, and how many those are."""
    checked: dict[int, bool] = {}
    for message in (message for line in found.lines for message in line):
        if id(message) not in checked:
            checked[id(message)] = (not message.text.isspace() and message.text != "") or says_something(message)
    lines = [[message for message in line if checked[id(message)]] for line in found.lines]
    return [line for line in lines if line], sum(not says for says in checked.values())


def _marked(lines: list[list[Message]], name: str, found: Found) -> list[list[Message]]:
    """The lines, with where they came from in the `meta` of their first message."""
    origin = {"from": name, "id": found.id, **({"title": found.title} if found.title else {})}
    firsts: dict[int, Message] = {}
    for line in lines:
        first = line[0]
        firsts.setdefault(id(first), replace(first, meta={**(first.meta or {}), ABOUT: origin}))
    return [[firsts[id(line[0])], *line[1:]] for line in lines]


def _take(store: Store, name: str, found: Found, progress: Progress | None) -> TakenIn:
    messages = list({id(message): message for line in found.lines for message in line}.values())
    placed = place(store, name, found.lines, progress=progress)
    known = [message.usage for message in messages if message.usage is not None]
    return TakenIn(
        name=name,
        title=_title(found),
        messages=len(messages),
        new=placed.added,
        tool_calls=sum(len(message.tool_calls) for message in messages),
        branches=placed.branches,
        input_tokens=sum(usage.input for usage in known) if known else None,
        output_tokens=sum(usage.output for usage in known) if known else None,
        tip=placed.conversation.tip,
    )


def _title(found: Found) -> str:
    said = (message.text for line in found.lines for message in line if message.role == "user" and message.text.strip())
    return " ".join((found.title or next(said, "")).split())[:FIRST_WORDS]


def _name(source_name: str, found: Found, into: str | None, taken: set[str]) -> str:
    """A name for a conversation, which is the same when it is imported again.

    The first is named as was asked; the others have their id behind that.
    """
    plain = into if into is not None and not taken else f"{into or source_name}-{as_name(found.id) or 'session'}"
    name = next(each for each in _candidates(plain, found.id) if each not in taken)
    taken.add(name)
    return name


def _candidates(plain: str, id: str) -> Iterator[str]:
    yield plain
    if not plain.endswith(id):
        yield f"{plain}-{id}"
    number = 2
    while True:
        yield f"{plain}-{number}"
        number += 1


def _nothing(files: Sequence[File], name: str, left_out: Counter[str]) -> str:
    if list(left_out.items()) == [(SILENT, 1)]:
        return f"{files[0].name}, read as {name}: nothing was said in this session."
    why = "; ".join(f"left out: {note}" for note in left_out)
    return f"There is no conversation in {files[0].name}, read as {name}.{f' {why}.' if why else ''}"
