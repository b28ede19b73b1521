"""Validate the arguments of a compiler before anything is read or stored."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import msgspec

from contextc._json import JSONObject
from contextc.compiler.ask import AnyTool, get_tool_name
from contextc.draft import CompilerOptions
from contextc.errors import InvalidInput, InvalidSetting
from contextc.formats.base import Formatter
from contextc.formats.named import detect_tool_format
from contextc.messages import Message, Usage
from contextc.providers import Provider
from contextc.providers import provider as provider_named
from contextc.store.places import check_name
from contextc.store.store import Store as AnyStore
from contextc.tools import NativeTool, Tool

TRANSPORT_FIELDS = ("extra_headers", "extra_query", "extra_body", "timeout", "api_key", "http_options")
COMPILER_FIELDS = ("messages", "contents", "input", "tools", "system", "systemInstruction", "instructions")
"""Fields that the compiler writes itself. `model` may be set: some endpoints have several names for one model."""


def check_store(store: object) -> None:
    if not isinstance(store, AnyStore):
        raise InvalidInput(
            f"store must be a Store, got {_type_name(store)}", fix='Open one: cc.open_store("sqlite:///chat.db").'
        )


def as_provider(given: object) -> Provider:
    if isinstance(given, str):
        return provider_named(given)
    if isinstance(given, Provider):
        return given
    raise InvalidInput(
        f"provider must be a Provider or a string, got {_type_name(given)}",
        fix='Pass "anthropic:claude-opus-5-5", or cc.provider(…).',
    )


def as_options(given: Mapping[str, object]) -> CompilerOptions:
    names = ", ".join(CompilerOptions.__struct_fields__)
    try:
        options = msgspec.convert(dict(given), CompilerOptions)
    except msgspec.ValidationError as error:
        raise InvalidSetting(f"MessageCompiler: {error}", fix=f"Valid options are {names}.") from None
    if not 0 < options.low < options.high <= 1:
        raise InvalidSetting(
            f"MessageCompiler: require 0 < low < high <= 1, got low={options.low}, high={options.high}."
        )
    if not (0 <= options.recent <= 1 and 0 < options.oversized <= 1 and options.keep_media >= 0):
        raise InvalidSetting(
            f"MessageCompiler: require 0 <= recent <= 1, 0 < oversized <= 1 and keep_media >= 0, got "
            f"recent={options.recent}, oversized={options.oversized}, keep_media={options.keep_media}."
        )
    if options.refresh < 0:
        raise InvalidSetting("refresh: expected a number of tokens", got=options.refresh, fix="Pass 0 or more.")
    return options


def check_compile_arguments(
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
            f"system_prompt must be a string, got {_type_name(system_prompt)}",
            fix="Pass a string, or fragments=[cc.PromptFragment(…)].",
        )
    for name, value in (("budget", budget), ("output", output)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise InvalidInput(f"{name} must be a positive number of tokens", got=value, fix="Pass an integer above 0.")
    if settings is not None and not isinstance(settings, dict):
        raise InvalidInput(
            f"settings must be a dict, got {_type_name(settings)}", fix="Use the field names of the provider's API."
        )
    for name in cast(JSONObject, settings or {}):
        if name in TRANSPORT_FIELDS:
            raise InvalidInput(
                f"settings: {name} belongs to the call, not to the request, which is stored",
                fix="Pass it to the vendor's SDK.",
            )
        if name in COMPILER_FIELDS:
            raise InvalidInput(f"settings: {name} is written by the compiler and cannot be set", fix="Remove it.")
    if (edit is not None or rewind is not None) and not dry_run:
        raise InvalidInput(
            "edit and rewind require dry_run=True", fix="To change the conversation, use store.edit or store.rewind."
        )
    if upcoming and not dry_run:
        raise InvalidInput("upcoming requires dry_run=True", fix="To send the messages, append them to the store.")
    if edit is not None and rewind is not None:
        raise InvalidInput("edit and rewind cannot be combined", fix="Pass one of them.")
    if edit is not None and not _is_edit(edit):
        raise InvalidInput(
            "edit must be a pair of the replaced message and the new message", fix='Write (3, cc.user("…")).'
        )


def _is_edit(edit: object) -> bool:
    return isinstance(edit, tuple) and len(cast(tuple[object, ...], edit)) == 2 and isinstance(edit[1], Message)


def as_tools(tools: object, formatter: Formatter) -> Sequence[AnyTool]:
    """Return the tools as `Tool` or `NativeTool`. A dict may be in OpenAI's chat format or in the provider's own.

    A function that is a tool is replaced by its definition.
    """
    if type(tools) in (list, tuple) and all([_is_valid_tool(tool) for tool in cast(list[object], tools)]):
        read = cast(Sequence[AnyTool], tools)
    elif tools is None:
        return ()
    elif isinstance(tools, Tool | NativeTool | str | Mapping) or not isinstance(tools, Iterable):
        kind = type(cast(object, tools)).__name__
        raise InvalidInput(
            f"tools must be a list of tools, got {kind}",
            fix="Write [cc.Tool(name=…, description=…, parameters=…)].",
        )
    else:
        read = [as_tool(tool, formatter) for tool in cast(Iterable[object], tools)]
    names = [get_tool_name(tool) for tool in read]
    if len({*names}) < len(names):
        twice = next((name for index, name in enumerate(names) if name and name in names[:index]), None)
        if twice is not None:
            raise InvalidInput(f"tools: two tools have the name {twice!r}", fix="Rename one of them.")
    return read


def _is_valid_tool(tool: object) -> bool:
    return type(tool) is Tool and type(tool.parameters) is dict and type(tool.name) is str and bool(tool.name.strip())


def as_tool(tool: object, formatter: Formatter) -> AnyTool:
    if isinstance(tool, Mapping):
        plain = dict(cast(Mapping[str, Any], tool))
        try:
            (tool,) = detect_tool_format(plain, formatter).decode_tools([plain])
        except (KeyError, TypeError, ValueError, AttributeError):
            raise InvalidInput(
                f"tools: expected a tool definition of {formatter.name} or OpenAI's chat",
                got=plain,
                fix="Write cc.Tool(name=…, description=…, parameters=…).",
            ) from None
    if isinstance(tool, NativeTool):
        return tool
    if not isinstance(tool, Tool):
        tool = _tool_definition(tool)
    if not isinstance(tool.name, str) or not tool.name.strip():
        raise InvalidInput("Tool: name must be a non-empty string", got=tool.name, fix="Name the tool.")
    if not isinstance(tool.parameters, dict):
        raise InvalidInput(
            f"Tool {tool.name!r}: parameters must be a JSON schema, got {_type_name(tool.parameters)}",
            fix="Pass a dict.",
        )
    return tool


def _tool_definition(tool: object) -> Tool:
    """Return the definition of a function, of a FunctionTool, or of a Tool with its function."""
    if not callable(tool) and not isinstance(tool, tuple):
        raise InvalidInput(
            f"tools: expected a tool or a function, got {_type_name(tool)}",
            fix="Pass a function, or cc.Tool(name=…, description=…, parameters=…).",
        )
    from contextc.toolbox import tools_by_name as functions  # importing it loads asyncio

    (made,) = functions(cast(Any, [tool])).values()  # raises InvalidInput if it is not a tool
    return made.tool


def check_commit_arguments(reply: object, produced: object, usage: object, session_id: object) -> None:
    if usage is not None and not isinstance(usage, Usage):
        raise InvalidInput(
            f"usage must be a Usage, got {_type_name(usage)}",
            fix="Pass cc.Usage(input=…, output=…), or omit it to use that of the reply.",
        )
    if session_id is not None and not isinstance(session_id, str):
        raise InvalidInput(
            f"session_id must be a string, got {_type_name(session_id)}", fix="Pass the provider's own session id."
        )
    if produced is not None and (
        not isinstance(produced, list | tuple)
        or any(not isinstance(each, Message) for each in cast(Sequence[object], produced))
    ):
        raise InvalidInput(
            "produced must be a list of messages", fix="Pass the model's messages and the results of its own tools."
        )
    if reply is None and produced is None:
        raise InvalidInput("No reply to commit", fix="Pass what the vendor's SDK returned, or abort the attempt.")
    if isinstance(reply, Message) and reply.role != "assistant":
        raise InvalidInput(
            f"reply must be an assistant message, got a {reply.role} message", fix="Append it to the store."
        )


def _type_name(value: object) -> str:
    return type(value).__name__
