"""`contextc list`, `fork`, `delete`, `redact`, `backup` and `restore`.

What the store holds, its copies, and what is removed from it.
"""

import os
from datetime import UTC, datetime
from typing import Annotated, NamedTuple

import msgspec
from rich.cells import cell_len, set_cell_size

from contextc.cli.command_line import Argument, Option
from contextc.cli.console import (
    JSONOption,
    YesOption,
    confirm,
    escape_markup,
    format_dollars,
    out,
    pluralize,
    print_json,
    replace_control_characters,
)
from contextc.cli.inputs import (
    StoreOption,
    open_configured_store,
    parse_reference,
    read_input,
    warn_pending_erasure,
)
from contextc.config import mask_secrets, read_settings
from contextc.errors import InvalidSetting
from contextc.messages import to_plain_text
from contextc.store import Store
from contextc.store.branches import count_branches
from contextc.store.conversation_list import (
    MAX_PAGE_SIZE,
    list_names,
    load_all_sources,
    load_start_times,
)
from contextc.store.redaction import load_redaction_target
from contextc.store.sqlite import check_backup_file, restore
from contextc.store.tags_and_notes import check_tag, load_all_tags
from contextc.store.transaction_engine import Transaction

# ── list ──────────────────────────────────────────────────────────────────────────────────────────────────────────────
# `contextc list`: list the conversations of a store.


COLUMNS = ("conversation", "messages", "branches", "started")
"""`started` is the time of the first message, also if it was imported later."""
COST = "cost"
CLIENT = "client"
"""The column of the client that made the requests, shown if there are observed conversations."""
TITLE = "title"
MIN_TITLE_WIDTH = 30
"""The width that titles have also where the other columns take the whole line."""


def list_conversations(
    tag: Annotated[str, Option("--tag", help="Only conversations with this tag.")] = "",
    costs: Annotated[
        bool, Option("--costs", help="Print what the requests of each cost, the most expensive first.")
    ] = False,
    store: StoreOption = None,
    json: JSONOption = False,
) -> None:
    """List the conversations of a store, most recently active first. With --json, they are sorted by name."""
    with open_configured_store(store) as handle:
        found = handle.conversations()
        tags = handle.read(load_all_tags)
        if tag:
            found = [each for each in found if check_tag(tag) in tags.get(each.name, ())]
        counts = handle.read(count_branches)
        sources = handle.read(load_all_sources)
        spent = handle.read(_load_costs) if costs else {}
        if costs:
            found.sort(key=lambda each: -(spent.get(each.name, NOTHING_SPENT).cost or 0.0))
        if json:
            plain = msgspec.to_builtins(found)
            for each in plain:
                if each["name"] in tags:
                    each["tags"] = tags[each["name"]]
                if costs:
                    each["cost"] = spent.get(each["name"], NOTHING_SPENT).cost
                if (source := sources.get(each["name"])) is not None:
                    each["observed"] = msgspec.to_builtins(source)
            print_json(plain)
            return
        started = handle.read(load_start_times)
        order = {name: place for place, name in enumerate(handle.read(list_names))}
        labels = {name: source.label for name, source in sources.items()}
        titles = {each.name: each.title for each in handle.overviews(limit=MAX_PAGE_SIZE).found}  # more take seconds
    rows = [
        (
            replace_control_characters(each.name),
            f"{each.length:,}",
            str(counts.get(each.name, 0)),
            *([_show_spent(spent.get(each.name, NOTHING_SPENT))] if costs else []),
            datetime.fromtimestamp(started.get(each.name, each.created) / 1000, UTC).strftime("%Y-%m-%d %H:%M"),
            *([replace_control_characters(labels.get(each.name, ""))] if sources else []),
            replace_control_characters(titles.get(each.name, "")),
        )
        for each in (found if costs else sorted(found, key=lambda each: order.get(each.name, len(order))))
    ]
    columns = (*COLUMNS[:-1], *([COST] if costs else []), COLUMNS[-1], *([CLIENT] if sources else []), TITLE)
    taken = sum(
        [max(map(cell_len, column)) + 2 for column in zip(columns[:-1], *[row[:-1] for row in rows], strict=True)]
    )
    room = max(MIN_TITLE_WIDTH, out.width - taken - 2)
    rows = [(*row[:-1], _cut(row[-1], room)) for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(columns, *rows, strict=True)]
    out.print(f"[bold]{_line(columns, widths)}[/]", soft_wrap=True)
    out.file.writelines([f"{_line(row, widths)}\n" for row in rows])  # a rich table takes a millisecond per row


class _Spent(NamedTuple):
    """The cost of the requests of a conversation in US dollars; None if it is not known of any."""

    cost: float | None
    is_lower_bound: bool


NOTHING_SPENT = _Spent(None, False)


def _load_costs(tx: Transaction) -> dict[str, _Spent]:
    """Return what the requests of each conversation cost."""
    from contextc.inspection.usage_by_conversation import load_conversation_states, load_usage  # takes time to import

    states = load_conversation_states(tx)
    found: dict[str, _Spent] = {}
    for start in range(0, len(states), MAX_PAGE_SIZE):
        some = states[start : start + MAX_PAGE_SIZE]
        usage = load_usage(tx, some)
        for state in some:
            portions = usage[state.number]
            cost = sum([each.cost for each in portions]) if any([each.priced for each in portions]) else None
            found[state.name] = _Spent(cost, any([each.bounded or each.unpriced for each in portions]))
    return found


def _show_spent(spent: _Spent) -> str:
    return "" if spent.cost is None else format_dollars(spent.cost, is_lower_bound=spent.is_lower_bound)


def _cut(title: str, room: int) -> str:
    return title if cell_len(title) <= room else f"{set_cell_size(title, room - 1)}…"


def _line(cells: tuple[str, ...], widths: list[int]) -> str:
    padded = [cell + " " * (width - cell_len(cell)) for cell, width in zip(cells, widths, strict=True)]
    return f" {'  '.join(padded)} "


# ── fork ──────────────────────────────────────────────────────────────────────────────────────────────────────────────
# `contextc fork`: create a conversation that shares the history of another.


def fork_conversation(
    conversation: Annotated[str, Argument(help="The conversation to fork.")],
    name: Annotated[str, Argument(help="The name of the new conversation.")],
    at: Annotated[str | None, Option("--at", help="The last message to share: its number, uid or id.")] = None,
    store: StoreOption = None,
    json: JSONOption = False,
) -> None:
    """Create a conversation that shares all messages up to one. Nothing is copied."""
    with open_configured_store(store) as handle:
        found = handle.fork(conversation, name, at=None if at is None else parse_reference(at))
    if json:
        print_json(found)
    else:
        out.print(
            f"[bold]{escape_markup(found.name)}[/] shares {pluralize(found.length, 'message')} with "
            f"[bold]{escape_markup(conversation)}[/]"
        )


# ── delete ────────────────────────────────────────────────────────────────────────────────────────────────────────────
# `contextc delete`: delete a conversation.


def delete_conversation(
    conversation: Annotated[str, Argument(help="The conversation to delete.")],
    store: StoreOption = None,
    yes: YesOption = False,
    json: JSONOption = False,
) -> None:
    """Delete a conversation with all its branches, except the messages that a fork of it shares."""
    with open_configured_store(store) as handle:
        found, branches = handle.conversation(conversation), len(handle.branches(conversation))
        size = pluralize(found.length, "message") + (f", {branches} branches" if branches > 1 else "")
        if not confirm(f"Delete {conversation} ({size})", yes, json=json):
            return
        handle.delete(conversation)
        pending = handle.pending_erasure
    if json:
        print_json({"conversation": conversation, "messages": found.length, "pending_erasure": pending})
        return
    out.print(f"deleted [bold]{escape_markup(conversation)}[/]: {size}", soft_wrap=True)
    warn_pending_erasure(pending)


# ── redact ────────────────────────────────────────────────────────────────────────────────────────────────────────────
# `contextc redact`: remove the content of one message, or a text from all that is stored of a conversation.


MAX_PREVIEW = 60


def redact_messages(
    conversation: Annotated[str, Argument(help="The conversation's name.")],
    message: Annotated[
        str | None, Argument(help="The message to redact: its number, uid or id.", show_default=False)
    ] = None,
    text: Annotated[
        str | None,
        Option(
            "--text", help="Remove this text wherever the conversation and its forks have it; - reads standard input."
        ),
    ] = None,
    store: StoreOption = None,
    yes: YesOption = False,
    json: JSONOption = False,
) -> None:
    """Remove the content of one message, in every fork. Its id and its place stay. With --text, remove a text."""
    if (message is None) == (text is None):
        raise InvalidSetting("redact needs a message or --text", fix="Pass one of them.")
    with open_configured_store(store) as handle:
        if text is not None:
            _redact_text(handle, conversation, text, yes=yes, json=json)
        elif message is not None:
            _redact_message(handle, conversation, message, yes=yes, json=json)


def _redact_message(handle: Store, conversation: str, message: str, *, yes: bool, json: bool) -> None:
    found = handle.read(lambda tx: load_redaction_target(tx, conversation, parse_reference(message)))
    what = f"message {found.seq} of {conversation}"
    lines = to_plain_text(found).strip().splitlines() or [""]
    first = lines[0] if len(lines) == 1 and len(lines[0]) <= MAX_PREVIEW else f"{lines[0][:MAX_PREVIEW]}…"
    if not confirm(f"Redact {what}", yes, detail=f"({found.role}: {first})", json=json):
        return
    handle.redact(conversation, found.uid)  # a number may refer to another message by now
    pending = handle.pending_erasure
    if json:
        print_json(
            {"conversation": conversation, "message": found.seq, "uid": found.uid, "role": found.role}
            | {"pending_erasure": pending}
        )
        return
    out.print(f"redacted {escape_markup(what)}", soft_wrap=True)
    warn_pending_erasure(pending)


def _redact_text(handle: Store, conversation: str, text: str, *, yes: bool, json: bool) -> None:
    handle.conversation(conversation)  # raises if it does not exist
    wanted = read_input("-").decode(errors="replace").rstrip("\r\n") if text == "-" else text
    if not confirm(f"Remove the text from {conversation} and its forks", yes, json=json):
        return
    found = handle.redact_text(conversation, wanted)
    pending = handle.pending_erasure
    if json:
        print_json({"conversation": conversation, "uids": [each.uid for each in found], "pending_erasure": pending})
        return
    what = f"redacted {pluralize(len(found), 'message')} of {conversation} and removed the text elsewhere"
    out.print(escape_markup(what), soft_wrap=True)
    warn_pending_erasure(pending)


# ── backup ────────────────────────────────────────────────────────────────────────────────────────────────────────────
# `contextc backup`: copy the whole store to one file.


def back_up(
    file: Annotated[str, Argument(help="The file to write. It must not exist yet.")],
    store: StoreOption = None,
) -> None:
    """Copy a SQLite store to one file, also while it is in use. For PostgreSQL, use pg_dump."""
    with open_configured_store(store) as handle:
        handle.backup(file)
        found = len(handle.conversations())
    out.print(
        f"wrote [bold]{escape_markup(file)}[/]: {pluralize(found, 'conversation')}, {os.path.getsize(file):,} bytes"
    )


# ── restore ───────────────────────────────────────────────────────────────────────────────────────────────────────────
# `contextc restore`: replace the store by a file that `contextc backup` wrote.


def restore_store(
    file: Annotated[str, Argument(help="A file that `contextc backup` wrote.")],
    store: StoreOption = None,
    yes: YesOption = False,
) -> None:
    """Replace a SQLite store by a backup. The replaced store is kept beside it, under another name."""
    check_backup_file(file)
    address = read_settings(store).store.value
    if not confirm(f"Replace {mask_secrets(address)} with {file}", yes):
        return
    aside = restore(file, address)
    out.print(f"restored [bold]{escape_markup(address)}[/] from {escape_markup(file)}", soft_wrap=True)
    if aside is not None:
        out.print(f"the replaced store is kept as {escape_markup(aside)}", soft_wrap=True)
