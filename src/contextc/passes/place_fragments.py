"""Puts the dynamic fragments at the tail, in one block, where they are due.

They are due when a turn begins, and before a step if their text has changed. Once shown they stay where they were
shown, so the prefix holds. Comes before the budget, so that they are counted.

    Before                              After
    user       What is left to do?      user       What is left to do?
                                        system     Todos: 1. write tests (open)
"""

from msgspec.structs import replace

from contextc.draft import Draft, Entry
from contextc.ledger.items import Item, Kind
from contextc.ledger.render import block_name
from contextc.messages import Message, Text
from contextc.prompts import SYSTEM_CONTEXT

CHANGED = "The instructions you were given at the start have changed. From now on these hold:\n\n"
ENDED = "The instructions you were given at the start no longer hold."


def place_fragments(draft: Draft) -> Draft:
    if draft.resume and draft.provider.keeps_static and draft.options.static_change == "update":
        told = draft.prompt.static_hash if draft.prompt.static else ""
        if told != draft.standing.head.static:
            draft = _with(draft, "update", CHANGED + draft.prompt.static_text if told else ENDED)
    text = draft.prompt.dynamic_text
    if not text or draft.options.placement == "head":
        return draft
    name = block_name(text)
    begins = any(entry.item.opens for entry in draft.tail)
    if not (begins or ((draft.new or draft.epoch) and name != draft.standing.dynamic)):
        return draft
    return _with(replace(draft, standing=replace(draft.standing, dynamic=name)), "dynamic", text)


def _with(draft: Draft, kind: Kind, text: str) -> Draft:
    marked = draft.resume and not draft.provider.system_in_session
    item = Item(kind=kind, role="user" if marked else "system", text=SYSTEM_CONTEXT + text if marked else text)
    message = Message(role=item.role, parts=(Text(item.text),))
    item = replace(item, tokens=draft.counter.message(message))
    return replace(draft, tail=(*draft.tail, Entry(item, message)))
