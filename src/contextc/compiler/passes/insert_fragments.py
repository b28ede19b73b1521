"""Insert the dynamic fragments that are due at the tail, in one block.

A fragment is due if this epoch has no copy of its current text. At the start of a turn it is also due if its latest
copy is far back; a session gets all fragments at every turn. A copy that replaces another one is marked as updated, and
a fragment that has become empty is withdrawn. Copies are never moved, so the prefix is stable. Runs before the budget,
so that they are counted.

    Before                              After
    user       What is left to do?      user       What is left to do?
                                        system     Todos: 1. write tests (open)
"""

from collections.abc import Sequence

from msgspec.structs import replace

from contextc.compiler.draft import Draft, DraftEntry
from contextc.messages import Message, Text
from contextc.prompts import SYSTEM_CONTEXT, heading_of
from contextc.prompts.builder import SEPARATOR
from contextc.store.ledger_schema import FragmentCopy, Item

PROMPT_CHANGED_TEXT = "The instructions you were given at the start have changed. From now on these hold:\n\n"
PROMPT_ENDED_TEXT = "The instructions you were given at the start no longer hold."
UPDATED_TEXT = "(updated: this replaces all earlier versions)"
WITHDRAWN_TEXT = "(withdrawn)\nAll earlier versions of this no longer hold."


def insert_fragments(draft: Draft) -> Draft:
    if draft.resume and draft.provider.keeps_static and draft.options.static_change == "update":
        told = draft.prompt.static_hash if draft.prompt.static else ""
        if told != draft.standing.head.static:
            text = PROMPT_CHANGED_TEXT + draft.prompt.static_text if told else PROMPT_ENDED_TEXT
            draft = _append_to_tail(draft, [Item(kind="update", text=text)])
    shown = draft.standing.fragments
    if draft.options.placement == "head" or not (shown or draft.prompt.dynamic):
        return draft
    begins = any(entry.item.opens for entry in draft.tail)
    if not (begins or draft.new or draft.epoch):
        return draft
    now = draft.standing.tokens if draft.kept is None else sum([item.tokens for item in draft.kept])
    now += sum([entry.item.tokens for entry in draft.tail])
    due = _due(draft, begins=begins, now=now)
    if not due:
        return draft
    copies = {**shown, **{item.fragment: FragmentCopy(item.hash, now) for item in due}}
    copies = {name: copy for name, copy in copies.items() if copy.hash}
    return _append_to_tail(replace(draft, standing=replace(draft.standing, fragments=copies, dynamic="")), due)


def _due(draft: Draft, *, begins: bool, now: int) -> list[Item]:
    """Return the copies and withdrawals that are due. `now` is the number of tokens before them."""
    shown, every = draft.standing.fragments, begins and draft.provider.session_resumption
    due: list[Item] = []
    for fragment in draft.prompt.dynamic:
        copy = shown.get(fragment.id)
        is_same = copy is not None and copy.hash == fragment.hash
        is_far = begins and copy is not None and now - copy.position > draft.options.refresh
        if is_same and not every and not is_far:
            continue
        title = f"## {fragment.heading}"
        if (copy is not None or draft.standing.dynamic) and not (is_same and every):
            title = f"{title} {UPDATED_TEXT}"
        due.append(Item(kind="dynamic", text=f"{title}\n{fragment.text}", fragment=fragment.id, hash=fragment.hash))
    gone = shown.keys() - {fragment.id for fragment in draft.prompt.dynamic}
    due += [
        Item(kind="dynamic", text=f"## {heading_of(name)} {WITHDRAWN_TEXT}", fragment=name)
        for name in shown
        if name in gone
    ]
    return due


def _append_to_tail(draft: Draft, items: Sequence[Item]) -> Draft:
    """Append inserted texts to the tail, marked as ours if a session accepts no system message."""
    marked = draft.resume and not draft.provider.system_in_session
    entries: list[DraftEntry] = []
    for item in items:
        text = SYSTEM_CONTEXT + item.text if marked else item.text
        role = "user" if marked else "system"
        message = Message(role=role, parts=(Text(text),))
        tokens = draft.counter.count_text(SEPARATOR + item.text) if entries else draft.counter.count_message(message)
        entries.append(DraftEntry(replace(item, role=role, text=text, tokens=tokens), message))
    return replace(draft, tail=(*draft.tail, *entries))
