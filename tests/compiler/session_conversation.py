"""Helpers for session tests: a conversation with a provider that keeps sessions."""

from typing import Unpack

import contextc as cc
from contextc.compiler import Compiled
from contextc.compiler.draft import CompilerOptionArguments
from contextc.providers import Provider
from contextc.providers.registry import ProviderFacts
from tests.compiler.simulated_providers import SessionProvider

TOOL = cc.Tool(name="look", description="Looks.", parameters={"type": "object", "properties": {}})
IDENTITY = cc.PromptFragment("identity", "You are a coder.")


def keeper(**facts: Unpack[ProviderFacts]) -> Provider:
    """A coding agent's own sessions: bound to a directory, forked to bring them back, static prompt kept."""
    own: ProviderFacts = {"session_resumption": True, "directory_bound": True, "reverts": True, "keeps_static": True}
    own.update(facts)
    return cc.provider("keeper:one", window=20_000, output=1_000, format="anthropic", **own)


def plain() -> Provider:
    return cc.provider("anthropic:claude-sonnet-4-5", window=20_000, output=1_000)


def sent_texts(compiled: Compiled) -> list[str]:
    """Return role and text of each block of a request."""
    lines: list[str] = []
    for message in compiled.params["messages"]:
        for block in message["content"]:
            text = block.get("text") or block.get("name") or block.get("content")
            lines.append(f"{message['role']}: {text}")
    return lines


class Talk:
    """A conversation with a provider that keeps sessions."""

    def __init__(self, store: cc.Store, provider: Provider, **options: Unpack[CompilerOptionArguments]) -> None:
        self.store, self.provider = store, provider
        self.compiler = cc.MessageCompiler(store, provider, **options)
        self.end = SessionProvider(reverts=provider.reverts)

    def compile(self, conversation: str = "demo", **how: object) -> Compiled:
        return self.compiler.compile(conversation, **{"instructions": [IDENTITY], **how})  # pyright: ignore[reportArgumentType]

    def step(self, reply: cc.Message, conversation: str = "demo", **how: object) -> Compiled:
        compiled = self.compile(conversation, **how)
        with self.compiler.attempt(compiled) as attempt:
            answer = self.end.send(compiled, [reply])
            attempt.commit(produced=answer.produced, session_id=answer.session_id, cursor=answer.cursor)
        self.end.acknowledge(answer)
        return compiled


def call(name: str) -> cc.Message:
    return cc.assistant(tool_calls=[cc.tool_call(name, "look", {})])
