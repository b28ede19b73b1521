"""Tools made from plain functions: the schema comes from the type hints and the docstring.

`tool` makes a `FunctionTool` from a function, as a decorator or by a call. Wherever tools are accepted, a plain
function is accepted too. A `FunctionTool` can still be called like its function.
"""

import inspect
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias, TypeGuard, cast, overload

from msgspec import Struct
from msgspec.structs import replace

from contextc.errors import InvalidInput, InvalidSetting
from contextc.messages import Extra, ToolCall, ToolResult
from contextc.tools.context import ToolContext
from contextc.tools.definitions import Tool
from contextc.tools.execution import run_call
from contextc.tools.parameters import Function, FunctionParameters, parameters_from_hints, parameters_with_schema

TOOL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}")


class FunctionTool(Struct, frozen=True, kw_only=True, eq=False):
    """A function that a model may call.

    `timeout` is the time limit in seconds. With `approval` a person must approve each call. With `parallel` it may run
    at the same time as other calls of its step.
    """

    tool: Tool
    function: Function
    parameters: FunctionParameters
    timeout: float | None = None
    approval: bool = False
    parallel: bool = True
    method: bool = False
    find_target: Callable[[ToolCall], "FunctionTool | None"] | None = None
    """For a tool that runs others: returns this tool with the approval, the limit and the order of the one that a call
    names."""

    def __repr__(self) -> str:
        options = [f", {name}={value!r}" for name in ("timeout", "approval") if (value := getattr(self, name))]
        return f"FunctionTool({self.name!r}{''.join(options)})"

    @property
    def name(self) -> str:
        """The name that the model calls the tool by."""
        return self.tool.name

    def for_call(self, call: ToolCall) -> "FunctionTool":
        """Return the tool with what holds for this call: another tool's approval and limit, if it runs that one."""
        return self if self.find_target is None else self.find_target(call) or self

    async def run(
        self, call: ToolCall, context: ToolContext | None = None, *, timeout: float | None = None
    ) -> ToolResult:
        """Run a call and return its result. Errors become a result with `is_error` and a text for the model.

        `timeout` applies if the tool has no limit of its own.
        """
        context = replace(context, call=call) if context is not None else ToolContext(call=call)
        seconds = self.timeout if self.timeout is not None else timeout
        return await run_call(self.function, self.parameters, call, context, seconds)

    def __call__(self, *arguments: object, **named: object) -> object:
        return self.function(*arguments, **named)

    def __get__(self, instance: object, owner: type | None = None) -> "FunctionTool":
        """Bind a tool that was defined as a method to its instance."""
        if instance is None or not self.method:
            return self
        return replace(self, function=cast(Function, self.function.__get__(instance, owner)), method=False)


ToolLike: TypeAlias = FunctionTool | Function | tuple[Tool, Function]
"""Anything accepted as a tool: a function, a FunctionTool, or a Tool with the function that runs it."""


@overload
def tool(
    function: Function,
    /,
    *,
    name: str | None = ...,
    description: str | None = ...,
    timeout: float | None = ...,
    approval: bool = ...,
    parallel: bool = ...,
    strict: bool | None = ...,
    extra: Extra | None = ...,
) -> FunctionTool: ...


@overload
def tool(
    spec: Tool, function: Function, /, *, timeout: float | None = ..., approval: bool = ..., parallel: bool = ...
) -> FunctionTool: ...


@overload
def tool(
    spec: Tool | None = None,
    /,
    *,
    name: str | None = ...,
    description: str | None = ...,
    timeout: float | None = ...,
    approval: bool = ...,
    parallel: bool = ...,
    strict: bool | None = ...,
    extra: Extra | None = ...,
) -> Callable[[Function], FunctionTool]: ...


def tool(
    first: Function | Tool | None = None,
    second: Function | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    timeout: float | None = None,
    approval: bool = False,
    parallel: bool = True,
    strict: bool | None = None,
    extra: Extra | None = None,
) -> FunctionTool | Callable[[Function], FunctionTool]:
    """Make a tool from a function: `@tool`, `@tool(timeout=5)`, `tool(function)`, or `tool(Tool(…), function)`.

    The last form sends the definition `Tool(…)` to the model and ignores the function's hints; arguments are passed by
    name. `strict` writes the schema in the form that OpenAI and Anthropic enforce. `extra` has further fields of the
    definition, by provider.
    """
    spec = first if isinstance(first, Tool) else None

    def make(function: Function) -> FunctionTool:
        _refuse_agent(function)
        if not callable(function):
            raise InvalidInput(f"tool: function must be callable, got {type(function).__name__}.")
        if isinstance(function, FunctionTool):
            raise InvalidInput(
                f"{function.name} is already a tool",
                fix="Set the options where it is created, or copy it: msgspec.structs.replace(tool, timeout=…).",
            )
        if timeout is not None and not (timeout > 0 and math.isfinite(timeout)):
            raise InvalidInput(
                "tool: timeout must be a number of seconds above 0", got=timeout, fix="Pass None for the default limit."
            )
        is_method = _is_method(function)
        if spec is not None:
            made, parameters = spec, parameters_with_schema(function, spec, method=is_method)
        else:
            made, parameters = _describe(function, name, description, strict, is_method)
            made = replace(made, extra=extra)
        return FunctionTool(
            tool=made,
            function=function,
            parameters=parameters,
            timeout=timeout,
            approval=approval,
            parallel=parallel,
            method=is_method,
        )

    if spec is not None and (name, description, strict, extra) != (None, None, None, None):
        raise InvalidInput(
            f"Tool {spec.name}: name, description, strict and extra cannot be combined with a Tool",
            fix="Set them in the Tool.",
        )
    function = second if spec is not None else first
    return make if function is None else make(cast(Function, function))


def tools_by_name(tools: ToolLike | Iterable[ToolLike] | Mapping[str, ToolLike] | None) -> dict[str, FunctionTool]:
    """Return the tools by name. Raises `InvalidInput` if two have the same name."""
    found: dict[str, FunctionTool] = {}
    if tools is None:
        return found
    for name, each in _name_pairs(tools):
        made = _make_tool(each, name)
        if made.name in found:
            raise InvalidInput(f"Two tools are named {made.name}", fix="Rename one: cc.tool(function, name=…).")
        found[made.name] = made
    return found


def _name_pairs(given: object) -> list[tuple[str | None, object]]:
    if isinstance(given, Mapping):
        return list(cast(Mapping[str | None, object], given).items())
    if not _is_pair(given) and isinstance(given, Iterable):
        return [(None, each) for each in cast(Iterable[object], given)]
    return [(None, given)]


def _is_pair(given: object) -> TypeGuard[tuple[Tool, Function]]:
    return isinstance(given, tuple) and len(cast(tuple[object, ...], given)) == 2 and isinstance(given[0], Tool)


def _refuse_agent(given: object) -> None:
    """Raise `InvalidSetting` for an agent or a method of one. Its class has the fix as `tool_fix`."""
    method = getattr(given, "func", given)  # of a functools.partial
    owner = type(cast(object, getattr(method, "__self__", method)))
    is_ours = str(getattr(method, "__module__", "")).partition(".")[0] == __name__.partition(".")[0]
    if (fix := getattr(owner, "tool_fix", "")) and (is_ours or not callable(method)):  # not a subclass's own method
        what = f"A method of {owner.__name__}" if callable(method) else owner.__name__
        raise InvalidSetting(f"tools: {what} has parameters that are not for a model, such as `conversation`", fix=fix)


def _make_tool(given: object, name: str | None) -> FunctionTool:
    _refuse_agent(given)
    if _is_pair(given):
        made = tool(given[0], given[1])
    elif isinstance(given, FunctionTool):
        made = given
    elif callable(given) and not isinstance(given, Tool):
        return tool(given, name=name)
    else:
        about = f"Tool {given.name} has no function" if isinstance(given, Tool) else f"{given!r} is not a tool"
        fix = "Pass a function, or (cc.Tool(…), function)."
        if isinstance(given, dict):
            fix += ' A tool that OpenAI runs itself is cc.tools.NativeTool(provider="openai", data={…}).'
        raise InvalidInput(about, fix=fix)
    if made.method:
        raise InvalidInput(
            f"Tool {made.name} is an unbound method", fix=f"Pass it from an instance: tools=[thing.{made.name}]."
        )
    return made if name in (None, made.name) else replace(made, tool=replace(made.tool, name=_validated_name(name)))


def _describe(
    function: Function, name: str | None, description: str | None, strict: bool | None, is_method: bool
) -> tuple[Tool, FunctionParameters]:
    named = _validated_name(name if name is not None else _name_of(function))
    parameters = parameters_from_hints(function, named, strict=bool(strict), method=is_method)
    text = parameters.description if description is None else description
    return Tool(name=named, description=text, parameters=parameters.schema, strict=strict), parameters


def _name_of(function: Function) -> str:
    inner = getattr(function, "func", function)  # of a functools.partial
    name = getattr(inner, "__name__", type(inner).__name__)
    if name == "<lambda>":
        raise InvalidInput("tool: a lambda has no name and no type hints", fix="Define the function with `def`.")
    return name


def _validated_name(name: str | None) -> str:
    if name is None or not TOOL_NAME.fullmatch(name):
        raise InvalidInput(
            "tool: name must have up to 64 letters, digits, `_` and `-`, and not start with a digit or `-`",
            got=name,
            fix="Set another with name=….",
        )
    return name


def _is_method(function: Function) -> bool:
    """Return True if this is a function in the body of a class, with an unbound `self`."""
    if not inspect.isfunction(function):
        return False
    first = function.__code__.co_varnames[:1]
    owner = function.__qualname__.rpartition(".")[0]
    return first in (("self",), ("cls",)) and bool(owner) and not owner.endswith("<locals>")
