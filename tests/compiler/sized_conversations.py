"""Helpers for tests of budgets and trimming: conversations of a known size, on a compiler with a small window."""

from collections.abc import Callable, Sequence

import contextc as cc
from contextc.compiler.draft import CompilerOptionArguments
from contextc.messages import Message

LOOK = cc.Tool(name="look", description="Looks.", parameters={"type": "object", "properties": {}})
CLAUDE = "anthropic:claude-sonnet-4-5"


def compiler_for(
    window: int = 4_000, output: int = 500, *, options: CompilerOptionArguments | None = None
) -> cc.MessageCompiler:
    """A compiler on a store of its own, for a model with a small window."""
    provider = cc.provider(CLAUDE, window=window, output=output)
    return cc.MessageCompiler(cc.open_store("memory:"), provider, **(options or {}))


def filler_text(count: int, name: str = "") -> str:
    """Return a text of about this many tokens."""
    return " ".join([name, *(f"word{index % 7}" for index in range(count // 2))]).strip()


def of_tokens(compiler: cc.MessageCompiler, tokens: int, make: Callable[[str], Message] = cc.user) -> Message:
    """A message that takes as many tokens as can be had without going over."""
    low, high = 1, 4 * tokens
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (
            (middle, high) if compiler.counter.count_message(make("x " * middle)) <= tokens else (low, middle - 1)
        )
    return make("x " * low)


def append_and_commit(
    compiler: cc.MessageCompiler,
    *messages: Message,
    reply: str = "Yes.",
    max_input_tokens: int | None = None,
    tools: Sequence[cc.Tool] = (),
) -> cc.Compiled:
    """Append messages, and commit a reply to them."""
    compiler.store.extend("c", messages)
    compiled = compiler.compile("c", max_input_tokens=max_input_tokens, tools=tools)
    compiler.begin(compiled)
    compiler.commit(compiled, cc.assistant(reply))
    return compiled


def step(compiler: cc.MessageCompiler, number: int, result: str) -> None:
    """A model's call, committed as its reply, and the result of it."""
    compiled = compiler.compile("c", tools=[LOOK])
    compiler.begin(compiled)
    compiler.commit(compiled, cc.assistant(tool_calls=[cc.tool_call(f"call{number}", "look", {})]))
    compiler.store.append("c", cc.tool_result(f"call{number}", "look", result))


def texts(compiled: cc.Compiled) -> str:
    return compiled.body.decode()


def roles(compiled: cc.Compiled) -> list[str]:
    return [message["role"] for message in compiled.params["messages"]]
