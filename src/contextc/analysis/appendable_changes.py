"""Changes of tools and effort that began a new prefix, although provider and model accept them as a message.

The format says how a change is written, and `Provider.features` whether provider and model accept it, as for the
compiler (`compiler/head_changes.py`). Here, the beta flags that would allow it are the question.
"""

from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from typing import NamedTuple

from contextc._json import as_object
from contextc.analysis.cache_model import Comparison, count_equal_rows
from contextc.analysis.changed_content import ToolChange
from contextc.analysis.request_elements import Element, RequestView
from contextc.errors import ContextcError
from contextc.formats.base import EncodedChange, HeadChange
from contextc.messages import ProviderBlock
from contextc.providers import Provider
from contextc.providers.registry import provider


class AppendableChange(NamedTuple):
    """Words for the title and the fix of a change that a message could have stated."""

    words: str
    fix: str


def find_appendable_tools(comparison: Comparison, changes: Iterable[ToolChange]) -> AppendableChange | None:
    """Return how a message could have stated changes of tools; None if it could not, or if more than that changed."""
    some, before = list(changes), comparison.before
    if comparison.settings or not _is_continued(comparison):
        return None
    change = HeadChange(
        added=tuple([_definition(each.after) for each in some if each.kind == "added"]),
        replaced=tuple([_definition(each.after) for each in some if each.kind == "changed"]),
        removed=tuple([each.name for each in some if each.kind == "removed"]),
        has_tools=bool(before.tools.elements),
    )
    return _describe(comparison.now, change)


def find_appendable_effort(comparison: Comparison) -> AppendableChange | None:
    """Return how a message could have stated another effort; None if it could not, or if more than that changed."""
    before, now = comparison.before, comparison.now
    made = _allow_everything(*now.scope, now.format)
    if made is None or not _is_continued(comparison):
        return None
    formatter = made.formatter
    effort, changed = formatter.read_effort(now.settings), [name for name, _ in comparison.settings]
    if not effort or changed != [".".join(formatter.effort_path)] or not formatter.can_change_effort(before.settings):
        return None
    if [each.key for each in before.tools.elements] != [each.key for each in now.tools.elements]:
        return None
    return _describe(now, HeadChange(effort=effort))


def _is_continued(comparison: Comparison) -> bool:
    """Return True if a request has the system prompt and all messages of an earlier one, and new ones after them."""
    before, now = comparison.before, comparison.now
    heads = [[each.key for each in (*view.system.elements, *view.leading.elements)] for view in (before, now)]
    return heads[0] == heads[1] and count_equal_rows(before, now) == before.rows.count < now.rows.count


def _describe(now: RequestView, change: HeadChange) -> AppendableChange | None:
    made = _allow_everything(*now.scope, now.format)
    encoded = made.formatter.encode_change(change, made.features) if made is not None else None
    if made is None or encoded is None:
        return None
    flags = _find_flags(made, encoded.features)
    if now.observed is None and (not flags or set(flags) <= set(now.record.betas)):
        return None  # the compiler could have appended it, and had another reason not to
    words = f"{now.channel.model} accepts the change as a message"
    if now.observed is None:
        listed = ", ".join([f'"{each}"' for each in flags])
        call = f'`cc.provider("{made.title}", betas=[{listed}])`'
        return AppendableChange(words, f"Allow the change as a message: {call}. Then the prefix stays.")
    allowed = (
        f", with {' and '.join([f'`{each}`' for each in flags])} in the header `{made.beta_header}`" if flags else ""
    )
    return AppendableChange(
        words,
        f"Keep the beginning of the request, and append the change as a message{_name_blocks(encoded)}{allowed}. "
        "Then the prefix stays. In a program of others, only its makers can do that.",
    )


def _name_blocks(encoded: EncodedChange) -> str:
    """Return the names of the blocks that state a change; "" if it has none."""
    blocks = [part.data for part in encoded.message.parts if isinstance(part, ProviderBlock)]
    names = dict.fromkeys([str(each.get("type") or next(iter(each), "")) for each in blocks])
    return f" ({', '.join([f'`{each}`' for each in names])})" if names else ""


def _find_flags(made: Provider, features: tuple[str, ...]) -> tuple[str, ...]:
    """Return the fewest beta flags that allow some features."""
    for flag in made.betas:
        if set(features) <= _with_flags(made, (flag,)).features:
            return (flag,)
    return made.flags_of(features)


def _with_flags(made: Provider, flags: tuple[str, ...]) -> Provider:
    return provider(made.title, format=made.format, betas=flags)


@lru_cache(maxsize=64)
def _allow_everything(name: str, model: str, format: str) -> Provider | None:
    """Return a provider with the beta flags of all features of its model; None if it or its features are not known."""
    with suppress(ContextcError):
        made = provider(f"{name}:{model}", format=format)
        flags = made.flags_of(made.model.features)
        found = _with_flags(made, flags) if flags else made
        return found if found.features else None
    return None


def _definition(element: Element | None) -> dict[str, object]:
    return as_object(element.value) if element is not None else {}
