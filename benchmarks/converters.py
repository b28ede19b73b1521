"""Who converts in `convert.py`: contextc and its peers, each with the same conversation as messages of its own.

A subject makes its messages beforehand and hands out what is to be timed, by row: what one of its requests does to the
messages, and its converter alone. The peers' types are not known here, because they are not part of this project's
environment.
"""

import copy
import json
import os
from collections.abc import Callable, Coroutine, Sequence
from importlib import import_module
from typing import Any, NamedTuple, Protocol, TypeAlias

import contextc as cc
from contextc._json import JSONObject
from contextc.formats.base import Formatter, Request, split_segments

ANTHROPIC, OPENAI = SHAPES = ("anthropic", "openai chat")
OURS, SEALED, ALONE = "contextc", "contextc, sealed", ", converter alone"
CLAUDE, GPT = "claude-sonnet-4-5", "gpt-4.1"
SENTENCE = "The harbour office asks for the papers of the third ship before noon, and for the name of its captain. "
SYSTEM = SENTENCE * 10
TOOL = "read_file"
FASTER = 5.0
GOAL_LENGTH = 1000
BLOCK = 2000
"""Messages converted in one measurement, at least: short histories are converted several times."""

Wire: TypeAlias = list[JSONObject]
Work: TypeAlias = Callable[[], Wire]
Spot: TypeAlias = tuple[str, str, int]
"""A row's name, a shape, and the length of the history."""


class Said(NamedTuple):
    """One message of the conversation, in nobody's terms. `calls` are ids with their arguments."""

    role: str
    text: str
    calls: tuple[tuple[str, JSONObject], ...] = ()
    call_id: str = ""


class Content(NamedTuple):
    """What an output holds, so that nobody is measured for leaving something out."""

    calls: int
    results: int
    characters: int


def conversation(length: int) -> list[Said]:
    """Questions, answers with two calls, two results each; an answer whose results would not fit has no calls."""
    said: list[Said] = []
    for index in range(length):
        match index % 4:
            case 0:
                said.append(Said("user", text(index, 200)))
            case 1:
                paths = [f"src/harbour/{index}_{number}.py" for number in range(2)]
                calls = [(f"call_{index}_{n}", {"path": path, "lines": [1, 200]}) for n, path in enumerate(paths)]
                said.append(Said("assistant", text(index, 200), tuple(calls) if index + 2 < length else ()))
            case place:
                said.append(Said("tool", text(index, 600), call_id=f"call_{index - place + 1}_{place - 2}"))
    return said


def text(index: int, length: int) -> str:
    return f"{index:07d} {SENTENCE * 6}"[:length]


# ── who converts ──────────────────────────────────────────────────────────────────────────────────────────────────────
# Any: the peers are not part of this project's environment, so their types are not known here.


class Subject(Protocol):
    def works(self, shape: str, said: Sequence[Said]) -> dict[str, Work]:
        """For each row, what is timed; nothing where it does not know the shape."""
        ...


class Ours:
    def works(self, shape: str, said: Sequence[Said]) -> dict[str, Work]:
        formatter: Formatter = cc.AnthropicFormatter() if shape == ANTHROPIC else cc.OpenAIFormatter()
        history, prompt = self._stored(said), cc.system(SYSTEM)
        request = Request(messages=tuple(history), system=prompt)
        *before, _ = split_segments(formatter.pair_calls(history).messages)
        sealed = [formatter.encode(segment) for segment in before]
        last = max(index for index, message in enumerate(history) if message.role == "assistant")

        def next_step() -> Wire:
            step = formatter.encode(formatter.pair_calls(history[last:]).messages)
            return formatter.assemble(request, formatter.join([*sealed, step]))["messages"]

        def everything() -> Wire:
            return formatter.encode_request(request)["messages"]

        assert next_step() == everything()
        return {OURS: everything, SEALED: next_step}

    def _stored(self, said: Sequence[Said]) -> list[cc.Message]:
        with cc.open_store("memory:") as store:
            store.extend("benchmark", [self._message(each) for each in said])
            return store.load("benchmark")

    def _message(self, said: Said) -> cc.Message:
        match said.role:
            case "user":
                return cc.user(said.text)
            case "assistant":
                calls = [cc.tool_call(name, TOOL, given) for name, given in said.calls]
                return cc.assistant(said.text, tool_calls=calls)
            case _:
                return cc.tool_result(said.call_id, TOOL, said.text)


class LiteLLM:
    """`transform_request` of a provider; a request checks the messages before, and copies them for Anthropic."""

    def __init__(self) -> None:
        os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it fetches a price list when imported
        utils: Any = import_module("litellm.utils")
        self._check: Any = utils.validate_and_fix_openai_messages
        self._config_of: Any = utils.ProviderConfigManager.get_provider_chat_config
        self._providers: Any = import_module("litellm.types.utils").LlmProviders

    def works(self, shape: str, said: Sequence[Said]) -> dict[str, Work]:
        anthropic = shape == ANTHROPIC
        model, provider = (CLAUDE, self._providers.ANTHROPIC) if anthropic else (GPT, self._providers.OPENAI)
        config = self._config_of(model=model, provider=provider)
        messages = [{"role": "system", "content": SYSTEM}, *map(openai_message, said)]

        def convert(messages: Any) -> Wire:
            given: Any = {"optional_params": {"max_tokens": 1024}, "litellm_params": {}, "headers": {}}
            return config.transform_request(model=model, messages=messages, **given)["messages"]

        def request() -> Wire:
            checked = self._check(messages)
            return convert(copy.deepcopy(checked) if anthropic else checked)

        return {"litellm": request, "litellm" + ALONE: lambda: convert(messages)}


class LangChain:
    """The payload of the chat models; alone, what langchain-anthropic and langchain-core have for messages only."""

    def __init__(self) -> None:
        self._types: Any = import_module("langchain_core.messages")
        self._anthropic: Any = import_module("langchain_anthropic.chat_models")
        self._openai: Any = import_module("langchain_openai")

    def works(self, shape: str, said: Sequence[Said]) -> dict[str, Work]:
        messages = [self._types.SystemMessage(SYSTEM), *map(self._message, said)]
        if shape == ANTHROPIC:
            model: Any = self._anthropic.ChatAnthropic(model=CLAUDE, api_key="none")
            alone: Work = lambda: self._anthropic._format_messages(messages, model=CLAUDE)[1]  # noqa: E731
        else:
            model = self._openai.ChatOpenAI(model=GPT, api_key="none")
            alone = lambda: self._types.convert_to_openai_messages(messages)  # noqa: E731
        return {"langchain": lambda: model._get_request_payload(messages)["messages"], "langchain" + ALONE: alone}

    def _message(self, said: Said) -> Any:
        match said.role:
            case "user":
                return self._types.HumanMessage(said.text)
            case "assistant":
                calls = [{"id": name, "name": TOOL, "args": given} for name, given in said.calls]
                return self._types.AIMessage(said.text, tool_calls=calls)
            case _:
                return self._types.ToolMessage(said.text, tool_call_id=said.call_id, name=TOOL)


class PydanticAI:
    """The models' own mapping; an agent calls `prepare_messages` before it. Nothing is awaited that has to wait."""

    def __init__(self) -> None:
        self._types: Any = import_module("pydantic_ai.messages")
        self._parameters: Any = import_module("pydantic_ai.models").ModelRequestParameters()
        anthropic: Any = import_module("pydantic_ai.models.anthropic")
        openai: Any = import_module("pydantic_ai.models.openai")
        providers: Any = import_module("pydantic_ai.providers.anthropic"), import_module("pydantic_ai.providers.openai")
        self._claude: Any = anthropic.AnthropicModel(CLAUDE, provider=providers[0].AnthropicProvider(api_key="none"))
        self._gpt: Any = openai.OpenAIChatModel(GPT, provider=providers[1].OpenAIProvider(api_key="none"))

    def works(self, shape: str, said: Sequence[Said]) -> dict[str, Work]:
        messages, parameters = self._messages(said), self._parameters
        model = self._claude if shape == ANTHROPIC else self._gpt

        def convert(messages: Any) -> Wire:
            if shape == ANTHROPIC:
                return at_once(model._map_message(messages, parameters, {}))[1]
            return at_once(model._map_messages(messages, parameters))

        prepared = model.prepare_messages(messages, parameters)
        return {
            "pydantic-ai": lambda: convert(model.prepare_messages(messages, parameters)),
            "pydantic-ai" + ALONE: lambda: convert(prepared),
        }

    def _messages(self, said: Sequence[Said]) -> list[Any]:
        """The system prompt stands before the first question, and the results of a step are one request."""
        types = self._types
        messages: list[Any] = []
        for each in said:
            match each.role:
                case "user":
                    head = [] if messages else [types.SystemPromptPart(SYSTEM)]
                    messages.append(types.ModelRequest(parts=[*head, types.UserPromptPart(each.text)]))
                case "assistant":
                    calls = [types.ToolCallPart(TOOL, given, tool_call_id=name) for name, given in each.calls]
                    messages.append(types.ModelResponse(parts=[types.TextPart(each.text), *calls]))
                case _:
                    part = types.ToolReturnPart(TOOL, each.text, tool_call_id=each.call_id)
                    if isinstance(messages[-1], types.ModelRequest):
                        messages[-1].parts.append(part)
                    else:
                        messages.append(types.ModelRequest(parts=[part]))
        return messages


class OpenAIAgents:
    """The converter of its chat model; a request copies what it returns. It has nothing for Anthropic's shape."""

    def __init__(self) -> None:
        self._convert: Any = import_module("agents.models.chatcmpl_converter").Converter.items_to_messages
        self._plain: Any = import_module("agents.models.openai_chatcompletions")._to_dump_compatible

    def works(self, shape: str, said: Sequence[Said]) -> dict[str, Work]:
        if shape == ANTHROPIC:
            return {}
        items: list[Any] = [{"role": "system", "content": SYSTEM}]
        for index, each in enumerate(said):
            items += self.items(each, index)
        return {
            "openai-agents": lambda: self._plain(self._convert(items, model=GPT)),
            "openai-agents" + ALONE: lambda: self._convert(items, model=GPT),
        }

    def items(self, said: Said, index: int) -> list[JSONObject]:
        match said.role:
            case "user":
                return [{"role": "user", "content": said.text}]
            case "assistant":
                content: list[JSONObject] = [{"type": "output_text", "text": said.text, "annotations": []}]
                reply: JSONObject = {"type": "message", "role": "assistant", "status": "completed", "content": content}
                calls = [
                    {"type": "function_call", "id": f"fc_{name}", "call_id": name, "name": TOOL, "status": "completed"}
                    | {"arguments": json.dumps(given)}
                    for name, given in said.calls
                ]
                return [{"id": f"msg_{index}", **reply}, *calls]
            case _:
                return [{"type": "function_call_output", "call_id": said.call_id, "output": said.text}]


def openai_message(said: Said) -> JSONObject:
    if said.role == "tool":
        return {"role": "tool", "tool_call_id": said.call_id, "content": said.text}
    functions = [(name, {"name": TOOL, "arguments": json.dumps(given)}) for name, given in said.calls]
    calls = [{"id": name, "type": "function", "function": function} for name, function in functions]
    return {"role": said.role, "content": said.text} | ({"tool_calls": calls} if calls else {})


def at_once(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """What a coroutine returns that waits for nothing: no event loop stands between it and the clock."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    raise RuntimeError("The coroutine waits for something.")


# ── what came out ─────────────────────────────────────────────────────────────────────────────────────────────────────


def content_of(wire: Wire) -> Content:
    """Calls, results and characters of text in either shape; it must be plain data, without the system prompt."""
    calls = results = characters = 0
    for message in json.loads(json.dumps(wire)):
        if message["role"] != "system":
            blocks: list[JSONObject] = message["content"] if isinstance(message["content"], list) else []
            calls += len(message.get("tool_calls") or ()) + sum(block["type"] == "tool_use" for block in blocks)
            results += (message["role"] == "tool") + sum(block["type"] == "tool_result" for block in blocks)
            characters += length_of(message["content"])
    return Content(calls, results, characters)


def length_of(content: str | list[JSONObject] | None) -> int:
    if isinstance(content, list):
        return sum(length_of(block.get("text") or block.get("content")) for block in content)
    return len(content or "")
