"""Who takes the steps of `compile.py`: contextc, and its peers in the way they document.

A subject holds the whole conversation in its own types. A step makes the next request within the budget, then takes in
the reply and what came after it; both are made beforehand. What a peer does not do is not charged to it: most store
nothing, and none is given tools. The two that cut by a number of messages get a number that fills the same window.
"""

import asyncio
import os
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from time import process_time
from types import SimpleNamespace
from typing import Any, NamedTuple, Protocol, Unpack

import contextc as cc
import converters
from contextc.compiler.draft import CompilerOptionArguments
from converters import CLAUDE, TOOL, Said, at_once, openai_message
from transcripts import Step, system_prompt

CONVERSATION = "benchmark"
WINDOW, OUTPUT, MARGIN = 200_000, 8_000, 2_000
BUDGET = WINDOW - OUTPUT - MARGIN
KEPT = 2_000
"""What those keep who cut by a number: about as many messages of these transcripts as fill the window."""
CHARACTERS, MESSAGE = 4, 3
"""Characters of a token and tokens of a message as such, by langchain's estimate; pydantic-ai's is cut by the same."""
PROVIDER = f"anthropic:{CLAUDE}"
PARTS = ("compile", "body", "begin", "commit", "append")

# Any: the peers are not part of this project's environment, so their types are not known here.


class Subject(Protocol):
    name: str
    cuts: str
    """By what it cuts: tokens, messages, items."""

    def fill(self, history: Sequence[Said]) -> None: ...

    def made(self, step: Step) -> Any:
        """A step in its own types, which is not timed."""
        ...

    def step(self, step: Any) -> Any:
        """Make the request, and take in what follows it."""
        ...

    def sent(self, request: Any) -> int:
        """How many messages a request has."""
        ...

    def close(self) -> None: ...


# ── contextc ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class OurStep(NamedTuple):
    reply: cc.Message
    given: cc.Message


def message(said: Said) -> cc.Message:
    match said.role:
        case "user":
            return cc.user(said.text)
        case "assistant":
            calls = [cc.tool_call(name, TOOL, given) for name, given in said.calls]
            return cc.assistant(said.text, tool_calls=calls)
        case _:
            return cc.tool_result(said.call_id, TOOL, said.text)


class Ours:
    """Compile and body, begin, commit of the reply, append of what came after it; `parts` sums up each."""

    cuts = "tokens"
    fragments = (cc.PromptFragment("policy", system_prompt()),)
    tools = (
        cc.Tool(
            name=TOOL,
            description="Looks something up.",
            parameters={"type": "object", "properties": {"id": {"type": "string"}}},
        ),
    )

    def __init__(
        self, address: str, name: str = "contextc", provider: str = PROVIDER, **options: Unpack[CompilerOptionArguments]
    ) -> None:
        self.name, self.address = name, address
        self.store = cc.open_store(address)
        self.provider = cc.provider(provider, window=WINDOW)
        self.compiler = cc.MessageCompiler(self.store, self.provider, **options)
        self.parts = dict.fromkeys(PARTS, 0.0)

    def fill(self, history: Sequence[Said]) -> None:
        for start in range(0, len(history), 1000):
            self.store.extend(CONVERSATION, [message(each) for each in history[start : start + 1000]])

    def made(self, step: Step) -> OurStep:
        return OurStep(message(step.reply), message(step.given))

    def compiled(self) -> cc.Compiled:
        return self.compiler.compile(CONVERSATION, instructions=self.fragments, tools=self.tools)

    def step(self, step: OurStep) -> cc.Compiled:
        compiler = self.compiler
        marks = [process_time()]
        compiled = self.compiled()
        marks.append(process_time())
        body = compiled.body
        marks.append(process_time())
        compiler.begin(compiled)
        marks.append(process_time())
        compiler.commit(compiled, step.reply)
        marks.append(process_time())
        self.store.append(CONVERSATION, step.given)
        marks.append(process_time())
        for index, part in enumerate(PARTS):
            self.parts[part] += marks[index + 1] - marks[index]
        assert body
        return compiled

    def sent(self, request: cc.Compiled) -> int:
        return len(request.params["messages"])

    def close(self) -> None:
        self.store.close()


# ── the peers ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class InMemory:
    """Peers that keep the conversation in a list."""

    def __init__(self) -> None:
        self.messages: list[Any] = []

    def fill(self, history: Sequence[Said]) -> None:
        self.messages = [self.message(each) for each in history]

    def message(self, said: Said) -> Any:
        raise NotImplementedError

    def made(self, step: Step) -> list[Any]:
        return [self.message(each) for each in step]

    def request(self) -> Any:
        raise NotImplementedError

    def step(self, step: list[Any]) -> Any:
        request = self.request()
        self.messages += step
        return request

    def sent(self, request: Any) -> int:
        return len(request["messages"])

    def close(self) -> None:
        self.messages = []


class LangChain(InMemory):
    """`trim_messages` as its documentation has it, with the counter it recommends on the hot path, then the payload."""

    name, cuts = "langchain", "tokens"

    def __init__(self) -> None:
        super().__init__()
        self._types: Any = import_module("langchain_core.messages")
        anthropic: Any = import_module("langchain_anthropic")
        self.model: Any = anthropic.ChatAnthropic(model=CLAUDE, api_key="none", max_tokens=OUTPUT)

    def fill(self, history: Sequence[Said]) -> None:
        super().fill(history)
        self.messages.insert(0, self._types.SystemMessage(system_prompt()))

    def message(self, said: Said) -> Any:
        match said.role:
            case "user":
                return self._types.HumanMessage(said.text)
            case "assistant":
                calls = [{"id": name, "name": TOOL, "args": given} for name, given in said.calls]
                return self._types.AIMessage(said.text, tool_calls=calls)
            case _:
                return self._types.ToolMessage(said.text, tool_call_id=said.call_id, name=TOOL)

    def trimmed(self, counter: Any = "approximate", tokens: int = BUDGET) -> list[Any]:
        return self._types.trim_messages(
            self.messages,
            strategy="last",
            token_counter=counter,
            max_tokens=tokens,
            start_on="human",
            end_on=("human", "tool"),
            include_system=True,
        )

    def request(self) -> Any:
        return self.model._get_request_payload(self.trimmed())


class LiteLLM(InMemory):
    """`trim_messages`, which counts exactly, then what a request to Anthropic does to the messages."""

    name, cuts = "litellm", "tokens"

    def __init__(self) -> None:
        super().__init__()
        os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it fetches a price list when imported
        utils: Any = import_module("litellm.utils")
        self._trim: Any = utils.trim_messages
        self._check: Any = utils.validate_and_fix_openai_messages
        providers: Any = import_module("litellm.types.utils").LlmProviders
        self._config: Any = utils.ProviderConfigManager.get_provider_chat_config(
            model=CLAUDE, provider=providers.ANTHROPIC
        )

    def fill(self, history: Sequence[Said]) -> None:
        super().fill(history)
        self.messages.insert(0, {"role": "system", "content": system_prompt()})

    def message(self, said: Said) -> Any:
        return openai_message(said)

    def request(self) -> Any:
        trimmed = self._trim(self.messages, model=CLAUDE, max_tokens=BUDGET)
        given: Any = {"optional_params": {"max_tokens": OUTPUT}, "litellm_params": {}, "headers": {}}
        return self._config.transform_request(model=CLAUDE, messages=self._check(trimmed), **given)


class PydanticAI(InMemory):
    """A history processor, as an agent calls it, then the preparing and mapping of its Anthropic model.

    The processor is written here, because none comes with it: from the end back until the budget is full, by the
    estimate that langchain uses, then on to the next question. It never looks at what it leaves out.
    """

    name, cuts = "pydantic-ai", "tokens"

    def __init__(self) -> None:
        super().__init__()
        self._types: Any = import_module("pydantic_ai.messages")
        self._parameters: Any = import_module("pydantic_ai.models").ModelRequestParameters()
        provider: Any = import_module("pydantic_ai.providers.anthropic").AnthropicProvider(api_key="none")
        self._model: Any = import_module("pydantic_ai.models.anthropic").AnthropicModel(CLAUDE, provider=provider)

    def message(self, said: Said) -> Any:
        types = self._types
        match said.role:
            case "user":
                return types.ModelRequest(parts=[types.UserPromptPart(said.text)], instructions=system_prompt())
            case "assistant":
                text = [types.TextPart(said.text)] if said.text else []
                calls = [types.ToolCallPart(TOOL, given, tool_call_id=name) for name, given in said.calls]
                return types.ModelResponse(parts=[*text, *calls])
            case _:
                part = types.ToolReturnPart(TOOL, said.text, tool_call_id=said.call_id)
                return types.ModelRequest(parts=[part], instructions=system_prompt())

    def recent(self, messages: list[Any]) -> list[Any]:
        types, left, index = self._types, (BUDGET - len(system_prompt()) // CHARACTERS) * CHARACTERS, len(messages)
        while index > 0:
            left -= MESSAGE * CHARACTERS
            for part in messages[index - 1].parts:
                if isinstance(part, types.ToolCallPart):
                    left -= len(part.args_as_json_str()) + len(part.tool_name) + len(part.tool_call_id)
                else:
                    left -= len(part.content)
            if left < 0:
                break
            index -= 1
        while index < len(messages) and not (
            isinstance(messages[index], types.ModelRequest)
            and any(isinstance(part, types.UserPromptPart) for part in messages[index].parts)
        ):
            index += 1
        return messages[index:]

    def request(self) -> Any:
        prepared = self._model.prepare_messages(self.recent(self.messages), self._parameters)
        system, messages = at_once(self._model._map_message(prepared, self._parameters, {}))
        return {"system": system, "messages": messages}


class Strands(InMemory):
    """The sliding window, applied before every call, in place; then the request of its Anthropic model."""

    name, cuts = "strands", "messages"

    def __init__(self) -> None:
        super().__init__()
        managers: Any = import_module("strands.agent.conversation_manager")
        self._manager: Any = managers.SlidingWindowConversationManager(window_size=KEPT, per_turn=True)
        self._model: Any = import_module("strands.models.anthropic").AnthropicModel(
            client_args={"api_key": "none"}, model_id=CLAUDE, max_tokens=OUTPUT
        )

    def message(self, said: Said) -> Any:
        if said.role == "tool":
            result = {"toolUseId": said.call_id, "status": "success", "content": [{"text": said.text}]}
            return {"role": "user", "content": [{"toolResult": result}]}
        text: list[Any] = [{"text": said.text}] if said.text else []
        calls = [{"toolUse": {"toolUseId": name, "name": TOOL, "input": given}} for name, given in said.calls]
        return {"role": said.role, "content": text + calls}

    def request(self) -> Any:
        self._manager.apply_management(SimpleNamespace(messages=self.messages))
        return self._model.format_request(self.messages, system_prompt=system_prompt())


class OpenAIAgents(converters.OpenAIAgents):
    """`SQLiteSession` with a limit of items, then the converter of its chat model; from there on litellm would convert.

    Its commits are synced as its own settings have it. One event loop for the whole run, as in a server.
    """

    name, cuts = "openai-agents", "items"

    def __init__(self, path: Path) -> None:
        super().__init__()
        package: Any = import_module("agents")
        settings: Any = import_module("agents.memory").SessionSettings(limit=KEPT)
        self._session: Any = package.SQLiteSession(CONVERSATION, path, session_settings=settings)
        self._runner = asyncio.Runner()
        self._system: Any = {"role": "system", "content": system_prompt()}

    def fill(self, history: Sequence[Said]) -> None:
        items = [item for index, each in enumerate(history) for item in self.items(each, index)]
        self._runner.run(self._session.add_items(items))

    def made(self, step: Step) -> list[Any]:
        return [item for each in step for item in self.items(each, 0)]

    def step(self, step: list[Any]) -> Any:
        return self._runner.run(self._step(step))

    async def _step(self, step: list[Any]) -> Any:
        items = await self._session.get_items()
        request = self._plain(self._convert([self._system, *items], model=CLAUDE))
        await self._session.add_items(step)
        return request

    def sent(self, request: Any) -> int:
        return len(request)

    def close(self) -> None:
        self._runner.close()
        self._session.close()
