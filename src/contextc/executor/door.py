"""What a caller may give to an executor. What is wrong is said here, before a turn begins or anything is stored.

An option is checked when the executor is made, because a turn that fails at its fifth step for a callback that takes
the wrong arguments has already done four.
"""

import asyncio
import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias, cast

from contextc.draft import Options
from contextc.errors import InvalidInput, InvalidSetting
from contextc.executor.limits import Limits
from contextc.messages import Message, user
from contextc.prompts import Surroundings
from contextc.store.places import check_name
from contextc.toolbox import FunctionTool, Toolable, as_tools
from contextc.tools import NativeTool, Tool

Given: TypeAlias = str | Message | Sequence[str | Message] | None
INPUT = ("user", "system")


# ── what a turn is given ──────────────────────────────────────────────────────────────────────────────────────────────


def as_messages(given: Given, agent: str) -> list[Message]:
    """What a turn of an agent is given, as messages."""
    if given is None:
        return []
    if isinstance(given, str | Message):
        return [as_message(given, agent)]
    if not isinstance(given, Sequence) or isinstance(given, bytes | bytearray):
        raise InvalidInput(f"A {_kind(given)} is no input. Give a text, cc.user(…), or a list of these.")
    if not given:
        raise InvalidInput("The list of messages is empty. Leave the input out to answer what waits.")
    return [as_message(each, agent) for each in given]


def as_message(given: object, agent: str) -> Message:
    """One thing that is said to an agent."""
    if isinstance(given, str):
        given = user(given)
    if not isinstance(given, Message):
        raise InvalidInput(f"A {_kind(given)} is no input. Give a text, or cc.user(…).")
    if given.role not in INPUT and not given.is_addressed_to(agent):
        raise InvalidInput(
            f"A message of role {given.role!r} is no input of a turn. Give a text, cc.user(…) or cc.system(…), or "
            f"another agent's message with recipients=({agent!r},); what was said elsewhere is put into the record "
            "with store.append."
        )
    if given.role == "user" and not any(getattr(part, "text", "x").strip() for part in given.parts):
        raise InvalidInput("The message is empty. Give a text, or leave the input out to answer what waits.")
    return given


def check_call(conversation: object, wait: object = 0) -> None:
    """The name of a conversation, and how long to stand in line; where an event loop runs."""
    check_name(conversation)
    if not is_number(wait) or not cast(float, wait) >= 0:
        raise InvalidInput(f"wait={wait!r}: give a number of seconds, 0 or more.")
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        raise InvalidInput(
            "A turn runs on an event loop, and there is none here. Call this inside an async function, which "
            "asyncio.run(…) runs."
        ) from None


def check_after(after: object) -> None:
    if isinstance(after, bool) or not isinstance(after, int) or after < 0:
        raise InvalidInput(f"after={after!r}: give the number of an event, or 0 for all of them.")


# ── what an executor is made of ───────────────────────────────────────────────────────────────────────────────────────


def check_names(made: Callable[..., object], options: Mapping[str, object]) -> None:
    """Options that nobody has."""
    unknown = [name for name in options if name not in Options.__struct_fields__]
    if unknown:
        parameters = inspect.signature(made).parameters.values()
        own = [each.name for each in parameters if each.kind is inspect.Parameter.KEYWORD_ONLY]
        raise InvalidSetting(
            f"AgentExecutor has no option {unknown[0]!r}. Its own are {', '.join(own)}; those of its compiler "
            f"{', '.join(Options.__struct_fields__)}."
        )


def parted_tools(given: object) -> tuple[dict[str, FunctionTool], list[NativeTool]]:
    """The tools that run here, and those that a provider runs itself."""
    if isinstance(given, NativeTool):
        return {}, [given]
    is_pair = isinstance(given, tuple) and isinstance(next(iter(cast(tuple[object, ...], given)), None), Tool)
    if given is None or is_pair or isinstance(given, Mapping | str | bytes) or not isinstance(given, Iterable):
        return as_tools(cast(Toolable, given)), []
    listed = list(cast(Iterable[object], given))
    native = [each for each in listed if isinstance(each, NativeTool)]
    return as_tools(cast(list[Toolable], [each for each in listed if not isinstance(each, NativeTool)])), native


def checked_limits(given: object) -> Limits:
    if given is None:
        return Limits()
    if not isinstance(given, Limits):
        raise InvalidSetting(f"limits is a {_kind(given)}. Give cc.Limits(steps=…, seconds=…), or leave it out.")
    return given


def check_endpoint(given: object) -> None:
    if given is not None and not callable(getattr(given, "stream", None)):
        raise InvalidSetting(
            f"endpoint is a {_kind(given)}. Give an open line, as cc.endpoint(provider) makes one; or leave it out."
        )


def check_context(surroundings: object, run: object) -> None:
    """The prompt context of an agent's turns, and the run its messages belong to."""
    if surroundings is not None and not isinstance(surroundings, Surroundings):
        raise InvalidSetting(
            f"surroundings must be a cc.Surroundings, got {_kind(surroundings)}. Write cc.Surroundings(project=…)."
        )
    if run is not None and (not isinstance(run, str) or not run):
        raise InvalidSetting(f"run must be a non-empty string, got {run!r}. Name the run, or leave it out.")


def check_callback(name: str, given: object, *, takes: Sequence[str], sync: bool = False) -> None:
    """A function of so many arguments, or None."""
    if given is None:
        return
    call = f"{name}({', '.join(takes)})"
    if not callable(given):
        raise InvalidSetting(f"{name} is a {_kind(given)}. Give a function, which is called as {call}.")
    try:
        inspect.signature(given).bind(*takes)
    except TypeError:
        raise InvalidSetting(f"{name}: the function is called as {call}, and does not take that.") from None
    except ValueError:  # one of C, which does not say
        return
    if sync and (inspect.iscoroutinefunction(given) or inspect.iscoroutinefunction(getattr(given, "__call__", None))):  # noqa: B004
        raise InvalidSetting(f"{name} is an async function. Give a plain one.")


def check_seconds(name: str, given: object) -> None:
    if not is_number(given) or not 0 < cast(float, given) < math.inf:
        raise InvalidSetting(f"{name}={given!r}: give a number of seconds above 0.")


def is_number(given: object) -> bool:
    return isinstance(given, int | float) and not isinstance(given, bool)


def _kind(value: object) -> str:
    return type(value).__name__
