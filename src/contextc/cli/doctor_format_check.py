"""`contextc doctor --format`: check whether conversations can be converted to a format."""

import msgspec

from contextc.cli.console import escape_markup, out, pluralize, print_block, print_json, progress_bar
from contextc.doctor import conversation_names
from contextc.errors import ContextcError
from contextc.formats import formatter
from contextc.interchange import export_request
from contextc.linting import Violation, lint
from contextc.store import Store


class FormatCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The result for one conversation: what the conversion changes, and the violations of the converted request."""

    conversation: str
    notes: list[str] = []
    violations: list[Violation] = []
    error: str = ""
    """The reason why it cannot be converted."""


def check_format(store: Store, conversation: str | None, format: str) -> list[FormatCheck]:
    """Convert all conversations of a store, or one, and return the results."""
    formatter(format)  # raises for an unknown format
    names = conversation_names(store)
    if conversation is not None:
        names = [conversation] if conversation in names else [store.conversation(conversation).name]
    found: list[FormatCheck] = []
    with progress_bar("converting") as bar:
        for name in names:
            found.append(_check_conversation(store, name, format))
            bar(len(found), len(names))
    return found


def _check_conversation(store: Store, name: str, format: str) -> FormatCheck:
    try:
        body, warnings = export_request(store, name, format=format)
    except ContextcError as error:
        return FormatCheck(conversation=name, error=str(error))
    if not body.get(formatter(format).messages_key):
        return FormatCheck(conversation=name, notes=[*warnings, "empty: it has no content for this format"])
    return FormatCheck(conversation=name, notes=warnings, violations=lint(body, format=format))


def print_format_checks(checks: list[FormatCheck], format: str, json: bool) -> None:
    if json:
        print_json(checks)
        return
    affected = [each for each in checks if each.notes or each.violations or each.error]
    for each in affected:
        lines = [f"[red]cannot be converted[/]: {escape_markup(each.error)}"] if each.error else []
        lines += [
            f"[red]{one.code}[/] {escape_markup(one.path)}: {escape_markup(one.message)}" for one in each.violations
        ]
        print_block(f"[bold]{escape_markup(each.conversation)}[/]", *lines, *map(escape_markup, each.notes))
    out.print(
        f"{pluralize(len(checks) - len(affected), 'conversation')} convertible without changes, {len(affected):,} not"
    )
