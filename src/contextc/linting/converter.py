"""Convert a request from one provider's format to another's.

Messages and tools are converted through the types of contextc, settings through common setting names. `warnings` lists
what the target format cannot represent, one entry each. Data that only the source format understands is not carried
over.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, cast, overload

from msgspec.structs import asdict, replace

from contextc._json import JSON, JSONObject
from contextc.formats.base import ConversionNote, Formatter, Request
from contextc.formats.message_preparation import IdentifierCodec
from contextc.formats.registry import formatter
from contextc.formats.request_settings import RequestSettings, ToolChoice, is_set
from contextc.linting.lint_and_fix import find_model_facts, repair_request
from contextc.linting.request_reading import coerce_request, decode_and_pair
from contextc.messages import Extra, ToolResult
from contextc.tools.definitions import Tool


class ConvertedBody(dict[str, Any]):  # a request's values are JSON, which has no narrower type
    """A converted request; `warnings` lists what could not be carried over."""

    warnings: list[str]


class ConvertedMessages(list[JSONObject]):
    """A converted list of messages; `warnings` lists what could not be carried over."""

    warnings: list[str]


@overload
def convert(body: JSONObject, *, source: str, target: str) -> ConvertedBody: ...
@overload
def convert(body: list[JSONObject], *, source: str, target: str) -> ConvertedMessages | ConvertedBody: ...
def convert(body: JSON, *, source: str, target: str) -> ConvertedBody | ConvertedMessages:
    """Return the request in the format of another provider; `warnings` lists what that format cannot represent.

    A bare list of messages stays a list. If it begins with a system prompt that the target keeps outside the messages,
    it becomes a whole body instead.
    """
    return convert_between(formatter(source), formatter(target), body)


def convert_between(
    before: Formatter,
    after: Formatter,
    body: JSON,
    *,
    edit: Callable[[Request], Request] = lambda request: request,
    edit_settings: Callable[[RequestSettings], RequestSettings] = lambda settings: settings,
) -> ConvertedBody | ConvertedMessages:
    """Return `convert` for these formatters. `edit` changes the request before it is encoded, `edit_settings` its
    settings in common terms.
    """
    body, bare, reshaped = coerce_request(before, body)
    request, notes = decode_and_pair(before, body, same_provider=before is after)
    if before is not after:
        request = before.with_final_tools(request)
    if before is not after and not after.system_among_messages:
        request = _with_leading_system_prompt(request)
    if reshaped:
        notes.append(ConversionNote("described", f"malformed content, in {reshaped} places"))
    if before is not after:
        notes += _lost_field_notes(before, request, after.carried_extra.get(before.extra_key, ()))
        request, warnings = _translate_settings(before, after, request, edit_settings)
        notes += warnings
    request = edit(request)
    lists = bare and (request.system is None or after.allows_leading_system)
    if lists and request.system is not None:
        request = replace(request, messages=(request.system, *request.messages), system=None)
    body, warnings = after.encode_with_notes(request)
    notes += warnings
    facts = find_model_facts(after, body)
    if body.get(after.messages_key) and (broken := after.rules.lint(body, facts)):
        body = repair_request(after, body, lambda body: after.rules.lint(body, facts), bare=lists)
        notes += [ConversionNote("changed", f"what {each.code} forbids: {each.message}") for each in broken]
    made = ConvertedMessages(body.get(after.messages_key, [])) if lists else ConvertedBody(body)
    times = Counter(map(str, notes))
    made.warnings = [text if count == 1 else f"{text} ({count} times)" for text, count in times.items()]
    if not body.get(after.messages_key):
        made.warnings.append(
            "empty: nothing of this can be represented there, and a request needs at least one message"
        )
    return made


def _with_leading_system_prompt(request: Request) -> Request:
    """Return the request with everything before the first message as its system prompt."""
    leading = [*([request.system] if request.system is not None else [])]
    first = next((index for index, each in enumerate(request.messages) if each.role != "system"), len(request.messages))
    leading += request.messages[:first]
    if not leading:
        return request
    parts = tuple(part for message in leading for part in message.parts)
    return replace(request, system=replace(leading[0], parts=parts), messages=request.messages[first:])


def _translate_settings(
    before: Formatter, after: Formatter, request: Request, edit: Callable[[RequestSettings], RequestSettings]
) -> tuple[Request, list[ConversionNote]]:
    """Return the request with its settings under the target's names, and notes on lost or changed ones."""
    read = before.settings.read(request.settings)
    asked = _with_encoded_tool_choice(read.settings, before.name_codec.names, after.name_codec.names)
    if not any(isinstance(tool, Tool) for tool in request.tools):
        asked = replace(asked, tool_choice=None, parallel_tool_calls=None)
    given, asked = asked, edit(asked)
    wrote = after.settings.write(asked)
    understood = asdict(after.settings.read(wrote.body).settings)
    notes = [ConversionNote("left out", f"the setting `{name}`, which only {before.name} has") for name in read.unread]
    for name, value in asdict(given).items():
        if value is not None and asdict(asked)[name] is None and name != "stream":
            label = _setting_label(before, name, request.settings)
            notes.append(ConversionNote("left out", f"the setting {label}, which is not passed on"))
    for name, value in asdict(asked).items():
        if value is None or (understood[name] == value and name not in wrote.unwritten):
            continue
        called = f"the setting {_setting_label(before, name, request.settings)}"
        if name in wrote.unwritten:
            notes.append(ConversionNote("left out", f"{called}, which {_unsupported_reason(after, name)}"))
        elif understood[name] is None:
            notes.append(
                ConversionNote("left out", f"{called}, which {after.name} does not take {_value_phrase(value)}")
            )
        else:
            notes.append(ConversionNote("changed", f"{called}, which {after.name} represents differently"))
    if asked.model is not None and asked.model == given.model and "model" not in wrote.unwritten:
        notes.append(ConversionNote("kept", f"the model {asked.model!r}: name one of the target's own"))
    return replace(request, settings=wrote.body), notes


def _setting_label(form: Formatter, name: str, settings: JSONObject) -> str:
    """Return the common name of a setting, followed by the name in the request if that differs."""
    places = [form.settings.paths.get(name), *(each for each, field in form.settings.aliases.items() if field == name)]
    used = next((place for place in places if place and is_set(settings, place)), name)
    return f"`{name}`" if used == name else f"`{name}` (`{used}`)"


def _unsupported_reason(form: Formatter, name: str) -> str:
    """Return the reason why a format has no place for a setting. Some formats take the model as a call argument."""
    called = next((place for place, field in form.settings.aliases.items() if field == name == "model"), None)
    return f"goes into the call (`{called}`) and not into the body" if called else f"{form.name} does not take"


def _value_phrase(value: object) -> str:
    """Describe the value of a setting: quoted if it is one word, else "in this form"."""
    value = value.mode if isinstance(value, ToolChoice) else value
    return f"as `{value}`" if isinstance(value, str) else "in this form"


def _with_encoded_tool_choice(
    settings: RequestSettings, before: IdentifierCodec | None, after: IdentifierCodec | None
) -> RequestSettings:
    """Return the settings with the name of the chosen tool as the target encodes it."""
    choice = settings.tool_choice
    if choice is None or not choice.name:
        return settings
    name = before.decode(choice.name) if before else choice.name
    return replace(settings, tool_choice=ToolChoice(choice.mode, after.encode(name) if after else name))


def _lost_field_notes(form: Formatter, request: Request, carried: tuple[str, ...]) -> Iterator[ConversionNote]:
    """Yield a note for each field that only the source format has, such as cache breakpoints and citations."""
    for name, places in Counter(_extra_field_names(form, request)).items():
        if name in carried:
            continue
        where = "one place" if places == 1 else f"{places} places"
        yield ConversionNote("left out", f"`{name}`, in {where}")


def _extra_field_names(form: Formatter, request: Request) -> Iterator[str]:
    messages = [*([request.system] if request.system else []), *request.messages]
    for message in messages:
        yield from _names_in_extra(form, message.extra)
        for part in message.parts:
            yield from _names_in_extra(form, part.extra)
            for inner in part.content if isinstance(part, ToolResult) and not isinstance(part.content, str) else ():
                yield from _names_in_extra(form, inner.extra)
    for tool in request.tools:
        if isinstance(tool, Tool):
            yield from _names_in_extra(form, tool.extra)


def _names_in_extra(form: Formatter, extra: Extra | None) -> Iterator[str]:
    for name, value in (extra or {}).get(form.extra_key, {}).items():
        if name in form.nested_extra and isinstance(value, dict):
            within = cast(JSONObject, value).items()
            yield from (inner for inner, each in within if each is not None and inner not in form.shared_extra)
        elif value not in (None, [], "") and name not in form.layout_extra:
            yield name
