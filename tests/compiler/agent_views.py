"""Helpers for tests of the agent view: a conversation as the agent `coder` sees it."""

from collections.abc import Sequence
from typing import Unpack

import contextc as cc
from contextc._json import JSONObject
from contextc.compiler.draft import CompilerOptionArguments

CHAT = cc.provider("openai-chat:gpt-4o")
CLAUDE = cc.provider("anthropic:claude-sonnet-4-5")
INTERRUPTED = "Interrupted: this call has no result. Whether the tool ran is not known."
SentMessage = tuple[str, object]


class Talk:
    """A conversation as the agent `coder` sees it, step by step."""

    def __init__(
        self, *log: cc.Message, provider: cc.Provider = CHAT, **options: Unpack[CompilerOptionArguments]
    ) -> None:
        self.store = cc.open_store("memory:")
        self.compiler = cc.MessageCompiler(self.store, provider, **options)
        self.add(*log)

    def add(self, *log: cc.Message) -> None:
        self.store.extend("demo", log)

    def compile(self, *, run: str | None = None, running: Sequence[str] | None = None) -> cc.Compiled:
        return self.compiler.compile("demo", name="coder", run=run, running=running)

    def shown(self, *, run: str | None = None, running: Sequence[str] | None = None) -> list[JSONObject]:
        return self.compile(run=run, running=running).params["messages"]

    def step(self, reply: str | cc.Message, *, run: str | None = None) -> list[JSONObject]:
        """One request, answered; what it held."""
        compiled = self.compile(run=run)
        self.compiler.commit(compiled, cc.assistant(reply) if isinstance(reply, str) else reply)
        return compiled.params["messages"]

    def left_out(self) -> list[tuple[int, str]]:
        return [(line.seq, line.why) for line in self.compile().manifest.lines if not line.shown]


def seen(*log: cc.Message) -> list[SentMessage]:
    """Return role and content of each message that is sent."""
    return sent_messages(Talk(*log).shown())


def sent_messages(messages: Sequence[JSONObject]) -> list[SentMessage]:
    return [(message["role"], message["content"]) for message in messages]


def call(id: str, name: str = "read") -> cc.ToolCall:
    return cc.ToolCall(id=id, name=name, arguments={})


def calls(*ids: str, text: str = "", author: str | None = None) -> cc.Message:
    return cc.assistant(text, tool_calls=[call(id) for id in ids], author=author)


def result(id: str, content: object = None, name: str = "read", author: str | None = None) -> cc.Message:
    return cc.tool_result(id, name, f"result of {id}" if content is None else content, author=author)
