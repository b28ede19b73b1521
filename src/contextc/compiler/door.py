"""What a caller may give to a compiler. What is wrong is said here, before anything is read or stored."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import msgspec

from contextc._json import JSONObject
from contextc.compiler.ask import AnyTool, tool_name
from contextc.draft import Options
from contextc.errors import InvalidInput, InvalidSetting
from contextc.formats.base import Formatter
from contextc.formats.named import tool_formatter
from contextc.messages import Message, Usage
from contextc.providers import Provider
from contextc.providers import provider as provider_named
from contextc.store.places import check_name
from contextc.store.store import Store as AnyStore
from contextc.tools import NativeTool, Tool

TRANSPORT = ("extra_headers", "extra_query", "extra_body", "timeout", "api_key", "http_options")
OURS = ("messages", "contents", "input", "tools", "system", "systemInstruction", "instructions")
"""What a compiler writes itself. `model` may be set: some endpoints know a model under several names."""


def check_store(store: object) -> None:
    if not isinstance(store, AnyStore):
        raise InvalidInput(f'A {_kind(store)} is not a store. Open one: cc.open_store("sqlite:///chat.db").')


def as_provider(given: object) -> Provider:
    if isinstance(given, str):
        return provider_named(given)
    if isinstance(given, Provider):
        return given
    raise InvalidInput(f'A {_kind(given)} is not a provider. Write "anthropic:claude-opus-5-5", or cc.provider(…).')


def as_options(given: Mapping[str, object]) -> Options:
    names = ", ".join(Options.__struct_fields__)
    try:
        options = msgspec.convert(dict(given), Options)
    except msgspec.ValidationError as error:
        raise InvalidSetting(f"MessageCompiler: {error}. Its options are {names}.") from None
    if not 0 < options.low < options.high <= 1:
        raise InvalidSetting(
            f"low={options.low}, high={options.high}: a cut goes from high down to low, above 0, up to 1."
        )
    if not (0 <= options.recent <= 1 and 0 < options.oversized <= 1 and options.keep_media >= 0):
        raise InvalidSetting("recent and oversized are shares between 0 and 1, and keep_media is a number of messages.")
    if options.refresh < 0:
        raise InvalidSetting(f"refresh: expected a number of tokens, got {options.refresh}. Give 0 or more.")
    return options


def check_ask(
    *,
    agent: object,
    system_prompt: object,
    settings: object,
    budget: object,
    output: object,
    edit: object,
    rewind: object,
    dry_run: bool,
    upcoming: object = (),
) -> None:
    check_name(agent, "agent")
    if system_prompt is not None and not isinstance(system_prompt, str):
        raise InvalidInput(
            f"system_prompt is a {_kind(system_prompt)}. Give a text, or fragments=[cc.PromptFragment(…)]."
        )
    for name, value in (("budget", budget), ("output", output)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise InvalidInput(f"{name}={value!r}: give a whole number of tokens above 0.")
    if settings is not None and not isinstance(settings, dict):
        raise InvalidInput(f"settings is a {_kind(settings)}. Give a dict, in the words of the provider's API.")
    for name in cast(JSONObject, settings or {}):
        if name in TRANSPORT:
            raise InvalidInput(
                f"{name} belongs to the call and not to a request, which is stored: give it to the vendor's SDK."
            )
        if name in OURS:
            raise InvalidInput(f"settings: {name} is what is compiled, and cannot be set.")
    if (edit is not None or rewind is not None) and not dry_run:
        raise InvalidInput("edit and rewind are for dry_run=True: store.edit and store.rewind do it for real.")
    if upcoming and not dry_run:
        raise InvalidInput("upcoming is for dry_run=True. Append the messages to the store to have them sent.")
    if edit is not None and rewind is not None:
        raise InvalidInput("Ask for an edit or for a rewind, not for both at once.")
    if edit is not None and not _is_edit(edit):
        raise InvalidInput('edit is a pair: the message that is replaced, and the new one. Write (3, cc.user("…")).')


def _is_edit(edit: object) -> bool:
    return isinstance(edit, tuple) and len(cast(tuple[object, ...], edit)) == 2 and isinstance(edit[1], Message)


def as_tools(tools: object, formatter: Formatter) -> Sequence[AnyTool]:
    """The tools as ours; a dict is read as OpenAI's chat writes a tool, or as the formatter's own provider does. Of a
    function that is a tool, what the model is told of it.
    """
    if type(tools) in (list, tuple) and all([_is_sound(tool) for tool in cast(list[object], tools)]):
        read = cast(Sequence[AnyTool], tools)
    elif tools is None:
        return ()
    elif isinstance(tools, Tool | NativeTool | str | Mapping) or not isinstance(tools, Iterable):
        kind = type(cast(object, tools)).__name__
        raise InvalidInput(f"A {kind} is not a list of tools. Write [cc.Tool(name=…, description=…, parameters=…)].")
    else:
        read = [as_tool(tool, formatter) for tool in cast(Iterable[object], tools)]
    names = [tool_name(tool) for tool in read]
    if len({*names}) < len(names):
        twice = next((name for index, name in enumerate(names) if name and name in names[:index]), None)
        if twice is not None:
            raise InvalidInput(f"There are two tools {twice!r}. Give one of them another name.")
    return read


def _is_sound(tool: object) -> bool:
    return type(tool) is Tool and type(tool.parameters) is dict and type(tool.name) is str and bool(tool.name.strip())


def as_tool(tool: object, formatter: Formatter) -> AnyTool:
    if isinstance(tool, Mapping):
        plain = dict(cast(Mapping[str, Any], tool))
        try:
            (tool,) = tool_formatter(plain, formatter).decode_tools([plain])
        except (KeyError, TypeError, ValueError, AttributeError):
            raise InvalidInput(f"This dict is no tool of {formatter.name}: {str(plain)[:200]}") from None
    if isinstance(tool, NativeTool):
        return tool
    if not isinstance(tool, Tool):
        tool = _told_of(tool)
    if not isinstance(tool.name, str) or not tool.name.strip():
        raise InvalidInput("A tool needs a name, by which the model calls it.")
    if not isinstance(tool.parameters, dict):
        raise InvalidInput(
            f"Tool {tool.name!r}: parameters is a {_kind(tool.parameters)}, and should be a JSON schema."
        )
    return tool


def _told_of(tool: object) -> Tool:
    """A function, a FunctionTool, or a Tool with its function."""
    if not callable(tool) and not isinstance(tool, tuple):
        raise InvalidInput(
            f"A {_kind(tool)} is not a tool. Give a function, or write cc.Tool(name=…, description=…, parameters=…)."
        )
    from contextc.toolbox import as_tools as functions  # with it come event loops, which nobody else here needs

    (made,) = functions(cast(Any, [tool])).values()  # whatever it is, the toolbox says what is wrong with it
    return made.tool


def check_reply(reply: object, produced: object, usage: object, session_id: object) -> None:
    if usage is not None and not isinstance(usage, Usage):
        raise InvalidInput(f"usage is a {_kind(usage)}. Write cc.Usage(input=…, output=…), or leave it to the reply.")
    if session_id is not None and not isinstance(session_id, str):
        raise InvalidInput(f"session_id is a {_kind(session_id)}. Give the provider's own name for its session.")
    if produced is not None and (
        not isinstance(produced, list | tuple)
        or any(not isinstance(each, Message) for each in cast(Sequence[object], produced))
    ):
        raise InvalidInput("produced is a list of messages: what the model said and what its own tools returned.")
    if reply is None and produced is None:
        raise InvalidInput("There is no reply to commit. Give what the vendor's SDK returned, or abort the attempt.")
    if isinstance(reply, Message) and reply.role != "assistant":
        raise InvalidInput(f"A {reply.role} message is no reply of a model. Append it to the store.")


def _kind(value: object) -> str:
    return type(value).__name__
