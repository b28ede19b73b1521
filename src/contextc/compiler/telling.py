"""What the lines of a manifest say: every message and inserted text, shown or not, as what, and why."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from contextc.ledger.items import Item
from contextc.manifest import Line
from contextc.messages import Message
from contextc.store.places import SEQ_MASK


def lines_of(
    items: Iterable[Item],
    left: Mapping[int, str],
    read: Callable[[Sequence[int]], Mapping[int, Message]],
    known: Mapping[int, Message] = {},
) -> list[Line]:
    """Everything shown, then what was not, with the words of each."""
    items = list(items)
    places = {item.place for item in items}
    hidden = sorted([where for where in left if where not in places], key=lambda where: where & SEQ_MASK)
    wanted = [*(where for where in places if where), *hidden]
    messages = {**read([where for where in dict.fromkeys(wanted) if where not in known]), **known}
    lines = [
        Line(
            seq=item.place & SEQ_MASK,
            kind=item.kind,
            role=item.role,
            shown=True,
            tokens=item.tokens,
            why=_how(item),
            text=_words(messages.get(item.place)) if item.kind == "message" else item.text,
        )
        for item in items
    ]
    lines += [
        Line(
            seq=where & SEQ_MASK,
            kind="message",
            role=messages[where].role if where in messages else "",
            shown=False,
            why=left[where],
            text=_words(messages.get(where)),
        )
        for where in hidden
    ]
    return lines


def _how(item: Item) -> str:
    """What is not as it was said."""
    notes = [
        f"as {item.prefix.strip()}" if item.prefix else "",
        "result left out, can be fetched" if item.decayed else "",
        "shortened" if item.limit else "",
        "without its reasoning" if item.bare else "",
        "reasoning joined in" if item.inline else "",
        "broke off" if item.failed else "",
        "media described" if item.blind else "",
    ]
    return ", ".join(note for note in notes if note)


def _words(message: Message | None) -> str:
    if message is None:
        return ""
    if message.redacted:
        return "[removed]"
    calls = [f"calls {call.name}({', '.join(call.arguments)})" for call in message.tool_calls]
    results = [f"{result.name}: {result.text[:200]}" for result in message.tool_results]
    return " ".join([message.text[:200], *calls, *results]).strip()
