"""`contextc doctor --format`: check whether conversations can be converted to a format."""

import msgspec

from contextc.cli.blocks import print_block
from contextc.cli.terminal import count, out, plain, print_json, progress
from contextc.doctor import conversation_names
from contextc.errors import ContextcError
from contextc.formats import formatter
from contextc.store import Store
from contextc.transfer import export_request
from contextc.wire import Violation, lint


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """The result for one conversation: what the conversion changes, and the violations of the converted request."""

    conversation: str
    notes: list[str] = []
    violations: list[Violation] = []
    error: str = ""
    """The reason why it cannot be converted."""


def look(store: Store, conversation: str | None, format: str) -> list[Look]:
    """Convert all conversations of a store, or one, and return the results."""
    formatter(format)  # raises for an unknown format
    names = conversation_names(store)
    if conversation is not None:
        names = [conversation] if conversation in names else [store.conversation(conversation).name]
    found: list[Look] = []
    with progress("converting") as bar:
        for name in names:
            found.append(_look(store, name, format))
            bar(len(found), len(names))
    return found


def _look(store: Store, name: str, format: str) -> Look:
    try:
        body, warnings = export_request(store, name, format=format)
    except ContextcError as error:
        return Look(conversation=name, error=str(error))
    if not body.get(formatter(format).messages_key):
        return Look(conversation=name, notes=[*warnings, "empty: it has no content for this format"])
    return Look(conversation=name, notes=warnings, violations=lint(body, format=format))


def show_look(found: list[Look], format: str, json: bool) -> None:
    if json:
        print_json(found)
        return
    told = [each for each in found if each.notes or each.violations or each.error]
    for each in told:
        lines = [f"[red]cannot be converted[/]: {plain(each.error)}"] if each.error else []
        lines += [f"[red]{one.code}[/] {plain(one.path)}: {plain(one.message)}" for one in each.violations]
        print_block(f"[bold]{plain(each.conversation)}[/]", *lines, *map(plain, each.notes))
    out.print(f"{count(len(found) - len(told), 'conversation')} convertible without changes, {len(told):,} not")
