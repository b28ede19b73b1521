"""A conversation in which tools come and go, sent step by step to the strict fake of its vendor.

Each reply has reasoning that the vendor signed. `Figures` are what an epoch costs: the bytes that requests share with
the ones before them, and the signed reasoning that they still contain.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import contextc as cc
from contextc._json import JSONObject, decode
from contextc.compiler import Compiled
from contextc.messages import Reasoning
from contextc.models import cost
from contextc.prompts import Instructions
from contextc.providers.registry import ProviderFacts
from contextc.tools import NativeTool
from tests.fake_vendors import KEY, FakeVendors, Reply, ScriptedCall
from tests.fake_vendors.server import head_of
from tests.fake_vendors.vendor import AcceptedRequest

MODELS: Mapping[str, str] = {
    "anthropic": "anthropic:claude-opus-5-5",
    "openai_responses": "openai:gpt-6-astra",
    "bedrock": "bedrock:us.anthropic.claude-opus-5-5",
}
BETAS = ("inline-tools-2026-09-15", "mid-conversation-output-config-2026-07-01")
FLAGS: Mapping[str, ProviderFacts] = {"anthropic": {"betas": BETAS}, "openai_responses": {}, "bedrock": {}}
"""What the provider of a format is allowed. Only Anthropic needs flags."""
STEPS = 30
ADDED_AT = (2, 4, 6, 9, 11, 14, 16, 19, 22, 26)
REMOVED_AT = (8, 17, 24)
PATHS = {"anthropic": "/v1/messages", "openai_responses": "/v1/responses"}


def tool(name: str, note: str = "") -> cc.Tool:
    query = {"type": "string", "description": "What to look for, in a few words."}
    return cc.Tool(
        name=name,
        description=f"Looks things up in {name}. {note}".strip(),
        parameters={"type": "object", "properties": {"query": query}, "required": ["query"]},
    )


class Figures(NamedTuple):
    """What one conversation came to."""

    epochs: int
    shared: int
    """Bytes of messages that requests share with the ones before them."""
    sent: int
    """Bytes of all requests."""
    reasoning: int
    """Replies with signed reasoning in the last request."""
    dollars: float
    """What the replies cost, with the prompt cache as the fake of the vendor simulates it."""


class ChangingTools:
    """A conversation with one model, with tools that its user changes between two steps."""

    def __init__(self, format: str, *, appends: bool = True, removed_tools: str | None = None) -> None:
        self.format, self.store = format, cc.open_store("memory:")
        facts: ProviderFacts = FLAGS[format] if appends else {"features": ()}
        self.provider = cc.provider(MODELS[format], **facts)
        self.options = {} if removed_tools is None else {"removed_tools": removed_tools}
        self.compiler = self.new_compiler()
        self.tools = [tool("files"), tool("notes")]
        self.native: list[NativeTool] = []
        self.settings: JSONObject = {}
        self.instructions: Instructions = "You look things up."
        self.requests: list[Compiled] = []
        self.vendors = FakeVendors(self.reply)
        self.calls = 0

    def new_compiler(self) -> cc.MessageCompiler:
        return cc.MessageCompiler(self.store, self.provider, **self.options)  # pyright: ignore[reportArgumentType]

    def reply(self, ask: AcceptedRequest) -> Reply:
        number = len(self.requests)
        calls = [ScriptedCall(self.tools[-1].name, {"query": f"part {number}"})] if number % 3 == 1 else []
        return Reply(None if calls else f"Answer {number}.", calls, f"Thought {number}: look closer.")

    def step(self, conversation: str = "demo", text: str | None = None) -> Compiled:
        """Add input, send the next request, and store the reply. The vendor must accept it."""
        last = self.store.load(conversation)[-1:] if self.requests else []
        calls = last[0].tool_calls if last else ()
        if calls:
            self.store.extend(conversation, [cc.tool_result(call.id, call.name, "found") for call in calls])
        else:
            self.store.append(conversation, cc.user(text or f"Question {len(self.requests)}?"))
        compiled = self.compile(conversation)
        with self.compiler.attempt(compiled) as attempt:
            attempt.commit(self.send(compiled))
        assert self.compiler.rebuild(conversation) == compiled.body
        self.requests.append(compiled)
        return compiled

    def compile(self, conversation: str = "demo", **options: object) -> Compiled:
        return self.compiler.compile(
            conversation,
            instructions=self.instructions,
            tools=[*self.tools, *self.native],
            settings=self.settings,
            max_output_tokens=2_000,
            **options,  # pyright: ignore[reportArgumentType]
        )

    def send(self, compiled: Compiled) -> JSONObject:
        headers = {
            "authorization": f"Bearer {KEY}",
            "content-type": "application/json",
            "anthropic-version": "2026-10-21",
            "anthropic-beta": ",".join(self.provider.flags_of(compiled.features)),
        }
        path = PATHS.get(self.format, f"/model/{self.provider.model_id}/converse")
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        answer, record = self.vendors.desk.answer(head_of("POST", path, raw), compiled.body)
        (body,) = [step for step in answer.steps if isinstance(step, bytes)]
        reply: JSONObject = decode(body)
        assert answer.status == 200, (record.refused, reply)
        return reply

    def run(self, steps: int = STEPS) -> Figures:
        """Send requests, with ten tools that are added and three that are removed."""
        for step in range(steps):
            if step in ADDED_AT:
                self.tools = [*self.tools, tool(f"source_{step}")]
            if step in REMOVED_AT:
                self.tools = self.tools[1:]
            self.step()
        return self.figures()

    def figures(self) -> Figures:
        signed = [
            message
            for message in self.requests[-1].messages
            if any(isinstance(part, Reasoning) and (part.signature or part.data) for part in message.parts)
        ]
        return Figures(
            epochs=self.requests[-1].state.epoch,
            shared=sum(each.record.shared_bytes for each in self.requests),
            sent=sum(len(each.body) for each in self.requests),
            reasoning=len(signed),
            dollars=sum(cost(self.provider.model, each.usage) or 0.0 for each in self.store.load("demo") if each.usage),
        )


def available(format: str, body: JSONObject) -> list[str]:
    """Return the tools that the model has at the end of a request, read from its bytes only."""
    found: dict[str, None] = {}

    def names(tools: Sequence[JSONObject]) -> list[str]:
        return [str((each.get("toolSpec") or each)["name"]) for each in tools]

    if format == "bedrock":
        found |= dict.fromkeys(names(body["toolConfig"]["tools"]))
        for message in body["messages"]:
            for block in message["content"]:
                if "toolRemoval" in block:
                    del found[block["toolRemoval"]["tool"]["name"]]
                elif "toolAddition" in block:
                    found[block["toolAddition"]["tool"]["name"]] = None
        return sorted(found)
    found |= dict.fromkeys(names(body.get("tools", [])))
    if format == "openai_responses":
        for item in body["input"]:
            found |= dict.fromkeys(names(item["tools"]) if item.get("type") == "additional_tools" else [])
        return sorted(found)
    for message in body["messages"]:
        for block in message["content"]:
            if block["type"] == "tool_removal":
                del found[block["tool"]["name"]]
            elif block["type"] == "tool_addition":
                found[(block["tool"].get("definition") or block["tool"])["name"]] = None
    return sorted(found)
