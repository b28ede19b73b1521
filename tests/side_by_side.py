"""The programs of docs/side-by-side.md: those of each library, by topic, and the model that answers them.

The tests of the docs run those of contextc, and the tests of each framework those of that one.
"""

import re
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from contextc._json import JSONObject, encode
from contextc.tools import Tool
from tests.fake_vendors.fake import FakeVendors
from tests.fake_vendors.faults import Fault, quota
from tests.fake_vendors.replies import Reply, ScriptedCall
from tests.fake_vendors.vendor import KEY, AcceptedRequest

PAGE = Path(__file__).parent.parent / "docs" / "side-by-side.md"
MOVING = PAGE.with_name("moving.md")
LIBRARIES = {
    "contextc": "",
    "pydantic-ai": "pydantic_ai",
    "OpenAI Agents": "openai_agents",
    "llm": "llm",
    "Mirascope": "mirascope",
}
"""The libraries as the page names them, in the order of its table, and the environments of the others."""
TOPIC = re.compile(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", re.M | re.S)
PROGRAM = re.compile(rf"^({'|'.join(LIBRARIES)})(?: \([^\n]*\))?:\n\n```py(?:thon)?\n(.*?)^```$", re.M | re.S)
OUTPUT = re.compile(r"^```text\n(.*?)^```$", re.M | re.S)
ANSWERS = {
    "How is the weather in Paris?": (ScriptedCall("get_weather", {"city": "Paris"}), "It is 18 °C, with rain."),
    "How much is a pen?": (ScriptedCall("price", {"item": "pen"}), "A pen is 3 euros."),
    "Order 7 arrived broken.": (ScriptedCall("transfer_to_refunds"), "You get 30 euros."),
}
"""What the model answers to a question: a call, and after its result a text."""
CITY: JSONObject = {"name": "Paris", "people": 2_100_000}
FALLBACK_QUESTION = "Why is the sky blue?"


def programs(library: str) -> dict[str, tuple[str, str]]:
    """Return the programs of a library, by topic, each with the output that all of its topic have."""
    found: dict[str, tuple[str, str]] = {}
    for topic, text in TOPIC.findall(PAGE.read_text()):
        (output,) = OUTPUT.findall(text)
        for name, code in PROGRAM.findall(text):
            if name == library:
                found[topic] = code, output
    return found


def count_lines(code: str) -> int:
    """Return the number of lines that are not blank."""
    return sum(bool(line.strip()) for line in code.splitlines())


def table_rows() -> str:
    """Return the rows of the table of lines."""
    by_library = [programs(library) for library in LIBRARIES]
    rows = ""
    for topic, _ in TOPIC.findall(PAGE.read_text()):
        counts = [str(count_lines(found[topic][0])) if topic in found else "none" for found in by_library]
        rows += f"| [{topic}](#{topic.lower().replace(' ', '-')}) | {' | '.join(counts)} |\n"
    return rows


def answer(ask: AcceptedRequest) -> Reply:
    messages, tools = ask.request.messages, ask.request.tools
    question = next(message.text for message in reversed(messages) if message.role == "user")
    if question == FALLBACK_QUESTION:
        return Reply("It scatters blue light most.")
    if question not in ANSWERS:  # the value, for pydantic-ai as the arguments of a call
        takes_city = [tool.name for tool in tools if isinstance(tool, Tool) and "people" in str(tool.parameters)]
        calls = [ScriptedCall(name, CITY) for name in takes_city]
        return Reply(None, calls) if calls else Reply(encode(CITY).decode())
    call, text = ANSWERS[question]
    return Reply(text) if any(message.tool_results for message in messages) else Reply(None, [call])


def fail_first_model(ask: AcceptedRequest) -> Fault | None:
    fails = ask.body.get("model") == "gpt-5.5" and FALLBACK_QUESTION.encode() in ask.raw
    return quota() if fails else None


@contextmanager
def answering_model(monkeypatch: pytest.MonkeyPatch) -> Generator[FakeVendors]:
    """Answer in place of OpenAI, for the programs of this process."""
    with FakeVendors(answer, faults=fail_first_model, strict=False) as fake:
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        monkeypatch.setenv("OPENAI_BASE_URL", fake.url("openai_responses"))
        monkeypatch.setenv("OPENAI_AGENTS_DISABLE_TRACING", "1")
        yield fake
        assert not fake.refused
