"""`contextc doctor --format`: what of each conversation a format could not say as it is, before anybody goes there."""

import msgspec
from rich.table import Table

from contextc.cli.terminal import count, out, plain, print_json, progress
from contextc.errors import ContextcError
from contextc.formats import formatter
from contextc.store import Store
from contextc.transfer import export_request
from contextc.wire import Violation, lint


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """One conversation as a request of a format: what it does not say as it was, and what would be refused in it."""

    conversation: str
    notes: list[str] = []
    violations: list[Violation] = []
    error: str = ""
    """Why no request can be made of it."""


def look(store: Store, conversation: str | None, format: str) -> list[Look]:
    """All conversations of a store, or one, as requests of a format."""
    formatter(format)  # an unknown one is refused before anything is read
    names = [store.conversation(conversation).name] if conversation is not None else _names(store)
    found: list[Look] = []
    with progress("looking") as bar:
        for name in names:
            found.append(_look(store, name, format))
            bar(len(found), len(names))
    return found


def _names(store: Store) -> list[str]:
    return [each.name for each in store.conversations()]


def _look(store: Store, name: str, format: str) -> Look:
    try:
        body, warnings = export_request(store, name, format=format)
    except ContextcError as error:
        return Look(conversation=name, error=str(error))
    if not body.get(formatter(format).messages_key):
        return Look(conversation=name, notes=[*warnings, "empty: nothing in it can be sent there"])
    return Look(conversation=name, notes=warnings, violations=lint(body, format=format))


def show_look(found: list[Look], format: str, json: bool) -> None:
    if json:
        print_json(found)
        return
    told = [each for each in found if each.notes or each.violations or each.error]
    if told:
        table = Table("conversation", f"what {format} would not say as it is", box=None, header_style="bold")
        for each in told:
            lines = [f"[red]cannot be sent[/]: {plain(each.error)}"] if each.error else []
            lines += [f"[red]{one.code}[/] {plain(one.path)}: {plain(one.message)}" for one in each.violations]
            lines += [plain(note) for note in each.notes]
            table.add_row(plain(each.conversation), "\n".join(lines))
        out.print(table)
    out.print(f"{count(len(found) - len(told), 'conversation')} said in full, {len(told):,} not")
