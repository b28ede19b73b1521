"""Compiled and answered conversations for the tests of the inspector, and a short request helper."""

from typing import Any, Unpack, cast

from starlette.testclient import TestClient

import contextc as cc
from contextc.compiler.draft import CompilerOptionArguments
from contextc.providers import Provider
from contextc.store.ledger_schema import channel_id

LOOK = cc.Tool(name="look", description="Looks.", parameters={"type": "object", "properties": {}})
FRAGMENTS = (cc.PromptFragment("identity", "You are a coder."), cc.PromptFragment("state", "busy", "dynamic"))
GPT = "openai-chat:gpt-4o"
SONNET = "anthropic:claude-sonnet-4-5"


def provider_of(spec: str = GPT, window: int = 10_000, **facts: Any) -> Provider:  # facts of several types
    return cc.provider(spec, window=window, output=1_000, **facts)


def strings_in(value: Any) -> set[str]:
    """Every string in some JSON, except for names of fields."""
    if isinstance(value, str):
        return {value}
    inside: list[Any] = []
    if isinstance(value, dict):
        inside = list(cast(dict[str, Any], value).values())
    elif isinstance(value, list):
        inside = cast(list[Any], value)
    return {text for each in inside for text in strings_in(each)}


class Life:
    """One conversation on one channel."""

    def __init__(
        self,
        store: cc.Store,
        provider: Provider | None = None,
        name: str = "demo",
        **options: Unpack[CompilerOptionArguments],
    ) -> None:
        self.store, self.name, self.provider = store, name, provider or provider_of()
        self.compiler = cc.MessageCompiler(store, self.provider, **options)
        self.fragments: tuple[cc.PromptFragment, ...] = FRAGMENTS
        self.tools: list[cc.Tool] = [LOOK]

    def compile(self, **how: Any) -> cc.Compiled:  # options of several types
        return self.compiler.compile(self.name, instructions=self.fragments, tools=self.tools, **how)

    def turn(
        self, text: str, reply: cc.Message | str = "done", usage: cc.Usage | None = None, **how: Any
    ) -> cc.Compiled:
        """Append a user message and the model's answer."""
        self.store.append(self.name, cc.user(text))
        return self.answer(reply, usage, **how)

    def answer(self, reply: cc.Message | str = "done", usage: cc.Usage | None = None, **how: Any) -> cc.Compiled:
        compiled = self.compile(**how)
        message = cc.assistant(reply) if isinstance(reply, str) else reply
        self.compiler.commit(compiled, message, usage=usage)
        return compiled

    @property
    def channel(self) -> str:
        return channel_id(self.compiler.channel(self.name))


class Asking:
    """A client that asks about one conversation."""

    def __init__(self, client: TestClient, life: Life) -> None:
        self.client, self.life = client, life

    def __call__(self, path: str, status: int = 200, **query: object) -> Any:  # JSON
        answer = self.raw(path, **query)
        assert answer.status_code == status, answer.text
        return answer.json()

    def raw(self, path: str, **query: object) -> Any:  # the client's own response
        given = {name.removesuffix("_"): str(value) for name, value in query.items()}
        return self.client.get(f"/api/conversations/{self.life.name}/{path}", params=given)

    def request(self, number: int, rest: str = "", **query: Any) -> Any:
        return self(f"requests/{self.life.channel}/{number}{rest}", **query)
