"""A stored conversation in Anthropic's and in OpenAI's chat shape, at 10 to 10,000 messages, in one run, as ratios.

Everybody holds the same conversation as messages of its own, made beforehand: a question, an answer with two calls, two
results, and so on. What is timed ends where a list of plain dicts is ready for the vendor's client. A peer has two
rows: what one of its requests does to the messages (`litellm.completion` checks them and copies them before it
converts, an agent of pydantic-ai prepares them), and its converter alone. contextc pairs calls and results and builds
the whole body. *Sealed* is what the next step of a history costs that only grows: its last segment is encoded, and
joined to those that were encoded before.

litellm and openai-agents begin with OpenAI's own dicts and text as arguments, so that there is little for them to
convert; the others hold the arguments as objects. Before anything is timed, each output is counted: a peer whose calls,
results or characters are not those of contextc is named.

All take turns (`measure.py`), each after a run that is not timed; litellm does so in a Python of its own, which is told
when. CPU time is compared, because nothing here waits. The collector is on, as in a program that does other things;
what the conversations themselves hold is frozen, so that nobody pays for the objects of others.
"""

import argparse
import copy
import gc
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Coroutine, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias

from rich.console import Console
from rich.table import Table

import contextc as cc
from contextc._json import JSONObject
from contextc.formats.base import Formatter, Request, segments
from measure import Cost, Goal, cpu, in_turn, ratio, show_goals, timed, typical
from peers import interpreter, version
from tables import duration, times

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
        *before, _ = segments(formatter.paired(history).messages)
        sealed = [formatter.encode(segment) for segment in before]
        last = max(index for index, message in enumerate(history) if message.role == "assistant")

        def next_step() -> Wire:
            step = formatter.encode(formatter.paired(history[last:]).messages)
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
            items += self._items(each, index)
        return {
            "openai-agents": lambda: self._plain(self._convert(items, model=GPT)),
            "openai-agents" + ALONE: lambda: self._convert(items, model=GPT),
        }

    def _items(self, said: Said, index: int) -> list[JSONObject]:
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


# ── the measuring ─────────────────────────────────────────────────────────────────────────────────────────────────────


class Bench(Protocol):
    contents: dict[Spot, Content]

    def measure(self, spot: Spot) -> Cost: ...


class Here:
    """Subjects in this process."""

    def __init__(self, subjects: Sequence[Subject], lengths: Sequence[int]) -> None:
        self._works: dict[Spot, Work] = {
            (name, shape, length): work
            for length in lengths
            for shape in SHAPES
            for subject in subjects
            for name, work in subject.works(shape, conversation(length)).items()
        }
        self.contents = {spot: content_of(work()) for spot, work in self._works.items()}
        gc.collect()
        gc.freeze()

    def measure(self, spot: Spot) -> Cost:
        work, count = self._works[spot], max(1, BLOCK // spot[2])
        work()

        def several() -> Wire:
            for _ in range(count - 1):
                work()
            return work()

        return timed(several, per=count)


class Apart:
    """litellm in its own Python, which answers each line with a line: what there is, then the cost of a spot."""

    def __init__(self, python: str, lengths: Sequence[int]) -> None:
        command = [python, __file__, "--serve", *map(str, lengths)]
        self._child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.contents = {(name, shape, length): Content(*found) for name, shape, length, found in self._answer()}

    def measure(self, spot: Spot) -> Cost:
        assert self._child.stdin is not None
        print(json.dumps(spot), file=self._child.stdin, flush=True)
        return Cost(*self._answer())

    def _answer(self) -> Any:  # Any: JSON
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        if not line:
            raise ChildProcessError(f"litellm's Python ended with {self._child.wait()}.")
        return json.loads(line)

    def close(self) -> None:
        self._child.communicate()


def serve(lengths: Sequence[int]) -> None:
    """The other end of `Apart`. What the package prints must not stand between the answers."""
    answers, sys.stdout = sys.stdout, sys.stderr
    bench = Here([LiteLLM()], lengths)
    print(json.dumps([(*spot, found) for spot, found in bench.contents.items()]), file=answers, flush=True)
    for line in sys.stdin:
        name, shape, length = json.loads(line)
        print(json.dumps(bench.measure((name, shape, length))), file=answers, flush=True)


def measure_all(benches: Sequence[Bench], rounds: int) -> dict[Spot, list[Cost]]:
    turns = [(bench, spot) for bench in benches for spot in bench.contents]
    turns.sort(key=lambda turn: (turn[1][2], turn[1][1]))  # who is compared is measured one after the other
    costs: dict[Spot, list[Cost]] = {spot: [] for _, spot in turns}
    for number in range(rounds):
        for bench, spot in in_turn(turns, number * len(turns) // rounds):
            costs[spot].append(bench.measure(spot))
    return costs


# ── what is shown ─────────────────────────────────────────────────────────────────────────────────────────────────────


def table(shape: str, costs: dict[Spot, list[Cost]], lengths: Sequence[int]) -> Table:
    found = Table(title=f"To the {shape} shape: CPU time, and how many times contextc's", title_justify="left")
    found.add_column("messages", no_wrap=True)
    for length in lengths:
        found.add_column(f"{length:,}", justify="right", no_wrap=True)
    for row in dict.fromkeys(name for name, _, _ in costs):
        cells = [cell(row, costs.get((row, shape, length)), costs[OURS, shape, length]) for length in lengths]
        found.add_row(row, *cells, end_section=row == SEALED)
    return found


def cell(row: str, own: Sequence[Cost] | None, ours: Sequence[Cost]) -> str:
    if own is None:
        return "-"
    return duration(typical(own).cpu) if row in (OURS, SEALED) else times(ratio(cpu(own), cpu(ours)).median)


def differences(contents: dict[Spot, Content]) -> list[str]:
    """Outputs that do not hold what ours holds."""
    return [
        f"{name}, {shape}, {length:,}: {found}, contextc has {contents[OURS, shape, length]}"
        for (name, shape, length), found in contents.items()
        if found != contents[OURS, shape, length]
    ]


def goals(costs: dict[Spot, list[Cost]]) -> list[Goal]:
    reached: list[Goal] = []
    for shape in SHAPES:
        ours = cpu(costs[OURS, shape, GOAL_LENGTH])
        peers = {
            name: ratio(cpu(own), ours).median
            for (name, own_shape, length), own in costs.items()
            if (own_shape, length) == (shape, GOAL_LENGTH) and name not in (OURS, SEALED)
        }
        for what, alone in (("request", False), ("converter alone", True)):
            shares = {name: share for name, share in peers.items() if name.endswith(ALONE) == alone}
            if shares:
                least = min(shares, key=lambda name: shares[name])
                text = f"{shape}, {GOAL_LENGTH:,} messages: {FASTER:.0f} times as fast as every peer's {what}"
                figure = f"{times(shares[least])} ({least.removesuffix(ALONE)})"
                reached.append(Goal(text, shares[least] >= FASTER, figure))
    return reached


def save(path: Path, costs: dict[Spot, list[Cost]], reached: Sequence[Goal]) -> None:
    figures = {", ".join(map(str, spot)): [cost._asdict() for cost in each] for spot, each in costs.items()}
    path.write_text(json.dumps({"costs": figures, "goals": [goal._asdict() for goal in reached]}, indent=2) + "\n")


PEERS: dict[str, tuple[Callable[[], Subject], tuple[str, ...]]] = {
    "langchain": (LangChain, ("langchain-core", "langchain-anthropic", "langchain-openai")),
    "pydantic-ai": (PydanticAI, ("pydantic-ai-slim",)),
    "openai-agents": (OpenAIAgents, ("openai-agents",)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Conversations in a provider's shape, by contextc and by its peers.")
    parser.add_argument("--quick", action="store_true", help="up to 1k messages only, fewer rounds")
    parser.add_argument("--no-install", action="store_true", help="make no environment for a peer that needs its own")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every measurement there too")
    parser.add_argument("--serve", type=int, nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
        return
    lengths, rounds = ((10, 100, 1000), 5) if options.quick else ((10, 100, 1000, 10_000), 7)
    console = Console()
    python = interpreter("litellm", install=not options.no_install)
    versions = {name: version(name) for name in ("contextc", *(each for _, names in PEERS.values() for each in names))}
    versions["litellm"] = python and version("litellm", python)
    shown = ", ".join(f"{name} {found or 'not installed'}" for name, found in versions.items())
    console.print(f"Python {platform.python_version()}, {shown}", highlight=False)
    present = [make() for make, names in PEERS.values() if all(versions[name] for name in names)]
    benches: list[Bench] = [Here([Ours(), *present], lengths)]
    apart = Apart(python, lengths) if python and versions["litellm"] else None
    try:
        benches += [apart] if apart else []
        costs = measure_all(benches, rounds)
    finally:
        if apart:
            apart.close()
    for shape in SHAPES:
        console.print(table(shape, costs, lengths))
    contents = {spot: found for bench in benches for spot, found in bench.contents.items()}
    for difference in differences(contents) or ["Every output holds the same calls, results and characters of text."]:
        console.print(f"  {difference}", highlight=False, soft_wrap=True)
    reached = goals(costs)
    show_goals(console, reached)
    if options.json:
        save(options.json, costs, reached)


if __name__ == "__main__":
    main()
