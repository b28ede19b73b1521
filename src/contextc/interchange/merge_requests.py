"""Merge of logged requests, which each repeat the whole history, into conversations.

Requests are inserted into a tree with one node per message, so only new messages take memory. The system prompt is kept
apart, because it may change with every request. Two requests with the same prompt belong to one conversation if one
contains the other, or both contain a third. With another prompt, their common part must contain a reply of the model.
Where requests diverge, the conversation has branches, and the newest is the last.

Messages are equal if they have the same text, calls or answered calls. A reply and its copy in the next request may
differ in other parts; then the reply is kept. Of a result that was truncated later, the longer form is kept. A result
with other content is another branch.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import count
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from contextc._json import encode_canonical
from contextc.interchange.found_conversation import FoundConversation
from contextc.interchange.truncated_results import longer_results
from contextc.messages import AnyPart, Media, Message, ProviderBlock, ToolCall, ToolResult

DIGITS = re.compile(r"\d+")
GENERATED_ID = re.compile(r"call_\d+")
"""Generated ids of calls that came without one. The numbers start again in each request, so they identify nothing."""
OTHER_PROMPT = "a system prompt other than the one its conversation began with"


class MergeNode:
    """A message at one position. `has_reply` is True if the path up to here contains a reply of the model."""

    __slots__ = ("children", "has_reply", "last_used", "message", "parent", "path", "replies", "requests")

    def __init__(self, message: Message | None, before: "MergeNode | None", path: bytes) -> None:
        self.message, self.parent, self.path = message, before, path
        self.has_reply = before is not None and (
            before.has_reply or (message is not None and message.role == "assistant")
        )
        self.last_used = 0
        self.children: dict[bytes, MergeNode] = {}
        self.requests: dict[bytes, RequestGroup] = {}
        self.replies: dict[bytes, Message] = {}


class RequestGroup(Struct, kw_only=True, eq=False):
    """The requests that end at a node with one prompt. `system` is the prompt, if no earlier request belongs to the
    same conversation. `replies` are the nodes of the replies. Times are pairs: Unix time in ms, and order in the log.
    """

    node: MergeNode
    prompt: bytes
    system: Sequence[Message]
    first_order: int
    last_time: tuple[int, int]
    replies: dict[MergeNode, tuple[int, int]]
    names: list[str]


class RequestEnd(NamedTuple):
    """The end of a request in the tree, and its prompt."""

    node: MergeNode
    prompt: bytes


class RequestTree:
    """A tree of messages, built request by request."""

    def __init__(self) -> None:
        self._roots: dict[str, MergeNode] = {}
        self._all: list[RequestGroup] = []
        self._turn = 0

    def root(self, group: str = "") -> MergeNode:
        """Return the root for requests. Requests of different `group` values are never merged."""
        return self._roots.setdefault(group, MergeNode(None, None, _digest((group,))))

    def add_request(
        self, node: MergeNode, system: Sequence[Message], messages: Iterable[Message], *, name: str = "", time: int = 0
    ) -> RequestEnd:
        """Insert a request whose messages follow a node. `name` is its name in the log."""
        self._turn += 1
        ids: dict[str, str] = {}
        for message in messages:
            node = self._child_for(node, message, ids)
        prompt = _digest([(message.role, message.text) for message in system]) if system else b""
        asked = node.requests.get(prompt)
        if asked is None:
            kept = () if _previous_request(node, prompt) else tuple(system)
            when = (time, self._turn)
            asked = RequestGroup(
                node=node, prompt=prompt, system=kept, first_order=self._turn, last_time=when, replies={}, names=[]
            )
            node.requests[prompt] = asked
            self._all.append(asked)
        asked.last_time = time, self._turn
        if name and name not in asked.names:
            asked.names.append(name)
        return RequestEnd(node, prompt)

    def add_reply(self, place: RequestEnd, reply: Message, *, time: int = 0) -> MergeNode:
        """Insert the reply to a request."""
        after = self._child_for(place.node, reply, {})
        kept = after.message if after.message is not None else reply
        after.replies.setdefault(place.prompt, _with_ids_of(reply, kept))
        asked = place.node.requests[place.prompt]
        asked.replies.pop(after, None)
        asked.replies[after] = time or asked.last_time[0], self._turn
        return after

    def conversations(self) -> Iterator[FoundConversation]:
        """Return the conversations of the requests, in the order of their first requests."""
        group_of: dict[int, list[RequestGroup]] = {}
        for each in self._all:
            group_of[id(each)] = [each]
        for each in self._all:
            before = _previous_request(each.node, each.prompt)
            if before is None or (there := group_of[id(before)]) is (here := group_of[id(each)]):
                continue
            small, large = sorted((there, here), key=len)
            large += small
            group_of |= {id(moved): large for moved in small}
        names = {id(root): apart for apart, root in self._roots.items()}
        given: set[int] = set()
        for each in self._all:
            group = group_of[id(each)]
            if id(group) not in given:
                given.add(id(group))
                yield _to_conversation(sorted(group, key=lambda asked: asked.first_order), names)

    def _child_for(self, node: MergeNode, message: Message, ids: dict[str, str]) -> MergeNode:
        """Return the node of a message after another. `ids` maps ids of the request to ids of the tree."""
        message = _with_ids(message, ids)
        key = _key(message)
        if message.role == "tool":
            key = _matching_result_key(node, key, message)
        after = node.children.get(key)
        if after is None:
            message = _with_unique_ids(message, node, ids)
            node.children[key] = after = MergeNode(message, node, _digest((node.path, key)))
        elif after.message is not None:
            ids |= {ours.id: theirs.id for ours, theirs in _generated_call_pairs(message, after.message)}
            if message.role == "tool":
                after.message = longer_results(after.message, message) or after.message
        after.last_used = self._turn
        return after


def _previous_request(node: MergeNode, prompt: bytes) -> RequestGroup | None:
    """Return the nearest earlier request of the same conversation: with the same prompt, or with a common reply."""
    other: RequestGroup | None = None
    below, above = node, node.parent
    while above is not None and above.parent is not None:
        if prompt in above.requests:
            return above.requests[prompt]
        if other is None and above.requests and below.message is not None and below.message.role == "assistant":
            answered = [asked for each, asked in above.requests.items() if above.has_reply or each in below.replies]
            other = next(
                (each for each in reversed(answered) if each.prompt in below.replies),
                answered[-1] if answered else None,
            )
        below, above = above, above.parent
    return other


def _to_conversation(group: Sequence[RequestGroup], names: dict[int, str]) -> FoundConversation:
    """Return a conversation with one line per leaf."""
    replies = {id(node): node.replies[asked.prompt] for asked in reversed(group) for node in asked.replies}
    ends = {asked.node: asked.last_time for asked in group}
    for asked in group:
        ends |= {node: max(when, ends.get(node, when)) for node, when in asked.replies.items()}
    inner: set[int] = set()
    for end in ends:
        above = end.parent
        while above is not None and id(above) not in inner:
            inner.add(id(above))
            above = above.parent
    by_clock = all(when[0] for when in ends.values())
    leaves = [(when if by_clock else when[1:], node) for node, when in ends.items() if id(node) not in inner]
    lines = [[*group[0].system, *_line(node, replies)] for _, node in sorted(leaves, key=lambda each: each[0])]
    top = min((asked.node for asked in group), key=_depth)
    known = names[id(_root(top))] or next((name for asked in group for name in asked.names), "")
    others = len({asked.prompt for asked in group if asked.prompt}) - 1
    return FoundConversation(
        id=known or blake2b(group[0].prompt + top.path, digest_size=6).hexdigest(),
        is_derived_id=not known,
        lines=lines,
        left_out=[OTHER_PROMPT] * others,
    )


def _line(node: MergeNode | None, replies: dict[int, Message]) -> list[Message]:
    found: list[Message] = []
    while node is not None:
        if node.message is not None:
            found.append(replies.get(id(node), node.message))
        node = node.parent
    return found[::-1]


def _depth(node: MergeNode) -> int:
    depth = 0
    while node.parent is not None:
        node, depth = node.parent, depth + 1
    return depth


def _root(node: MergeNode) -> MergeNode:
    while node.parent is not None:
        node = node.parent
    return node


def _key(message: Message) -> bytes:
    calls = [_call_key(call) for call in message.tool_calls] + [result.call_id for result in message.tool_results]
    text = "" if message.role == "tool" else message.text.strip()
    if message.role == "system":
        text = DIGITS.sub("0", text)
    is_reply = bool(calls) or (message.role == "assistant" and bool(text))  # logs often omit its other parts
    shown = [] if is_reply else [_media_key(part) for part in message.parts if isinstance(part, Media | ProviderBlock)]
    return _digest((message.role, message.author, text, calls, shown))


def _call_key(call: ToolCall) -> object:
    if not GENERATED_ID.fullmatch(call.id):
        return call.id
    return (call.name, call.raw if call.malformed else call.arguments)


def _media_key(part: Media | ProviderBlock) -> object:
    if isinstance(part, ProviderBlock):
        return part.data
    data = blake2b(part.data, digest_size=16).hexdigest() if part.data is not None else None
    return data or part.blob or part.url or part.file_id


def _digest(value: object) -> bytes:
    return blake2b(encode_canonical(value), digest_size=16).digest()


def _matching_result_key(node: MergeNode, key: bytes, results: Message) -> bytes:
    """Return the key of equal results after a node, complete or truncated: the last used, else a new one."""
    found: list[tuple[int, bytes]] = []
    for number in count():
        each = key + number.to_bytes(4, "big")
        there = node.children.get(each)
        if there is None:
            return max(found)[1] if found else each
        if there.message is not None and longer_results(there.message, results) is not None:
            found.append((there.last_used, each))
    raise AssertionError


def _generated_call_pairs(message: Message, other: Message) -> Iterator[tuple[ToolCall, ToolCall]]:
    """Return the pairs of equal calls of two messages with generated ids."""
    pairs = zip(message.tool_calls, other.tool_calls, strict=False)
    return ((ours, theirs) for ours, theirs in pairs if GENERATED_ID.fullmatch(ours.id))


def _with_ids_of(message: Message, other: Message) -> Message:
    return _with_ids(message, {ours.id: theirs.id for ours, theirs in _generated_call_pairs(message, other)})


def _with_unique_ids(message: Message, node: MergeNode, ids: dict[str, str]) -> Message:
    """Return the message with new unique ids for its calls that have generated ids."""
    made = [call.id for call in message.tool_calls if GENERATED_ID.fullmatch(call.id)]
    if not made:
        return message
    taken: set[str] = set()
    above: MergeNode | None = node
    while above is not None:
        taken |= {call.id for call in above.message.tool_calls} if above.message is not None else set()
        above = above.parent
    free = (name for number in count() if (name := f"call_{number}") not in taken)
    new = {each: next(free) for each in made}
    ids |= new
    return _with_ids(message, new)


def _with_ids(message: Message, ids: dict[str, str]) -> Message:
    if not ids or not any(isinstance(part, ToolCall | ToolResult) for part in message.parts):
        return message

    def part(each: AnyPart) -> AnyPart:
        if isinstance(each, ToolCall):
            return replace(each, id=ids.get(each.id, each.id))
        return replace(each, call_id=ids.get(each.call_id, each.call_id)) if isinstance(each, ToolResult) else each

    return replace(message, parts=tuple(part(each) for each in message.parts))
