"""Parse requests from any source, as tolerantly as possible."""

from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from typing import NamedTuple, cast

from msgspec.structs import replace

from contextc._json import JSON, JSONObject, encode, find_json_problem, fix_surrogates_in_json, json_type_name
from contextc.errors import InvalidRequest
from contextc.formats import format_names, formatter
from contextc.formats.base import ConversionNote, Formatter, Request, note_for_repair
from contextc.formats.lint_engine import JSONPath, RuleSet
from contextc.messages import Message, Reasoning, ToolCall
from contextc.messages.pairing import PairingRepair, pair_tool_calls


class DecodableRequest(NamedTuple):
    """A request that can be decoded.

    `bare`: it came as a bare list. `malformed_count`: the number of malformed values.
    """

    body: JSONObject
    bare: bool
    malformed_count: int


def validate_json(body: JSON) -> JSON:
    """Return a body that JSON can represent; lone surrogates become U+FFFD. Raise `InvalidRequest` for other values."""
    if isinstance(body, dict | list):  # may be a subclass, such as the result of `convert`
        body = list(cast(list[JSON], body)) if isinstance(body, list) else dict(cast(JSONObject, body))
    if problem := find_json_problem(body):
        raise InvalidRequest(problem[1], path=problem[0])
    try:
        encode(body)
    except UnicodeEncodeError:
        return fix_surrogates_in_json(body)
    return body


def check_request(body: JSON) -> None:
    if not isinstance(body, dict | list):
        raise InvalidRequest(f"a request must be an object or a list of messages, got {json_type_name(body)}.")


def coerce_request(form: Formatter, body: JSON) -> DecodableRequest:
    """Return the request with every malformed value coerced to a valid one: the intended value if it is clear, else
    text.
    """
    return coerce_validated(form, validate_json(body))


def coerce_validated(form: Formatter, body: JSON) -> DecodableRequest:
    """Return `coerce_request` of a body that has passed `validate_json`."""
    check_request(body)
    bare, rules = isinstance(body, list), form.rules
    root: JSONObject = {"whole": {form.messages_key: body} if bare else body}
    _check_messages_key(form, root["whole"])
    count = len(rules.parse(root["whole"]).malformed)
    if not count:
        return DecodableRequest(root["whole"], bare, 0)
    root = {"whole": _convert_foreign_messages(form, deepcopy(root["whole"]))}
    for reshape in (rules.coerce, rules.as_text):
        _replace_malformed(rules, root, reshape)
    return DecodableRequest(root["whole"], bare, count)


def _replace_malformed(rules: RuleSet, root: JSONObject, reshape: Callable[[JSON, JSONPath], JSON]) -> None:
    """Replace every malformed value in `root["whole"]`, from the last to the first."""
    holder: list[JSON] = []  # the list from which the positions in `gone` are deleted at once
    gone: set[JSON] = set()
    for finding in reversed(rules.parse(root["whole"]).malformed):
        *before, last = ("whole", *finding.path)
        parent: JSON = root
        for step in before:
            parent = parent[step]
        if parent is not holder:
            _delete_positions(holder, gone)
        there = last in parent if isinstance(parent, dict) else True
        shaped = reshape(parent[last] if there else None, finding.path)
        if shaped is None and isinstance(parent, list):
            holder = cast(list[JSON], parent)
            gone.add(last)
        elif shaped is None and there:
            del parent[last]
        elif shaped is not None:
            parent[last] = shaped
    _delete_positions(holder, gone)


def _delete_positions(holder: list[JSON], gone: set[JSON]) -> None:
    """Delete these positions from a list."""
    if gone:
        holder[:] = [each for index, each in enumerate(holder) if index not in gone]
        gone.clear()


def _check_messages_key(form: Formatter, body: JSONObject) -> None:
    """Raise `InvalidRequest` if the messages are under another format's key: such a request would look empty."""
    if form.messages_key in body:
        return
    kinds: dict[str, list[str]] = {}
    for name in format_names():
        kinds.setdefault(formatter(name).messages_key, []).append(name)
    for key, names in kinds.items():
        if isinstance(body.get(key), list):
            raise InvalidRequest(
                f"a request in format {form.name} must have its messages in `{form.messages_key}`, got `{key}`",
                fix=f"Use the format of this request, one of {', '.join(names)}.",
            )


def _convert_foreign_messages(form: Formatter, body: JSONObject) -> JSONObject:
    """Return the request with messages in another provider's format converted to this one.

    Histories that passed through several frameworks often contain a few messages in another format.
    """
    key = form.messages_key
    if not isinstance(body.get(key), list):
        return body
    broken = {
        finding.path[1] for finding in form.rules.parse(body).malformed if finding.path[:1] == (key,) != finding.path
    }
    messages: list[JSON] = []
    for index, message in enumerate(cast(list[JSON], body[key])):
        messages += (_convert_message(form, message) if index in broken else None) or [message]
    return {**body, key: messages}


def _has_recognized_calls(form: Formatter, message: JSON) -> bool:
    """Return True if the format itself finds the calls and results in a malformed message."""
    root: JSONObject = {"whole": {form.messages_key: [deepcopy(message)]}}
    _replace_malformed(form.rules, root, form.rules.coerce)
    sketch = form.rules.parse(root["whole"])
    kinds = {piece.kind for turn in sketch.messages for piece in turn.parts}
    return not sketch.malformed and bool(kinds & {"call", "result"})


def _convert_message(form: Formatter, message: JSON) -> list[JSONObject] | None:
    """Return a message converted to this format if another format can parse it; else None."""
    if _has_recognized_calls(form, message):
        return None
    for name in format_names():
        other = formatter(name)
        sketch = other.rules.parse([message])
        kinds = {piece.kind for turn in sketch.messages for piece in turn.parts}
        if other is not form and not sketch.malformed and kinds & {"call", "result", "media"}:
            request = other.decode_request({other.messages_key: [message]})
            return list(form.encode(request.messages).messages)
    return None


class DecodedRequest(NamedTuple):
    request: Request
    notes: list[ConversionNote]


def decode_and_pair(form: Formatter, body: JSONObject, *, same_provider: bool) -> DecodedRequest:
    """Decode the request: pair results with calls, assign calls and reasoning to the assistant, turn strays into text.

    With `same_provider`, the request goes back to the same provider. A result whose call the provider stores is then
    not a stray.
    """
    request = form.decode_request(body)
    if request.system is not None and _is_assistant_only(request.system):
        request = replace(request, messages=(request.system, *request.messages), system=None)
    messages = form.with_session_results(request) if same_provider else request.messages
    paired = pair_tool_calls(
        list(_with_assistant_roles(messages)),
        orphans_as_text=True,
        placement=form.result_placement,
        placed_by=form.extra_key if same_provider else "",
    )
    notes = [note for repair in paired.repairs if (note := _pairing_note(repair)) is not None]
    return DecodedRequest(replace(request, messages=tuple(paired.messages)), notes)


def _pairing_note(repair: PairingRepair) -> ConversionNote | None:
    if repair.kind in ("orphan", "duplicate"):
        return ConversionNote("changed", f"a result for {repair.call_id} that no call asked for, into text")
    return note_for_repair(repair)


def _with_assistant_roles(messages: Iterable[Message]) -> Iterator[Message]:
    """Yield the messages; those with calls or reasoning get the role `assistant`."""
    for message in messages:
        yield (
            replace(message, role="assistant")
            if message.role != "assistant" and _is_assistant_only(message)
            else message
        )


def _is_assistant_only(message: Message) -> bool:
    """Return True if only the assistant can have written a message."""
    return any(isinstance(part, ToolCall | Reasoning) for part in message.parts)
