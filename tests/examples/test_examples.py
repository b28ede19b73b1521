"""Run every program in `examples/` against strict fakes of the providers.

What arrived there is compared whole: the second request is the first one in which a call and its result went out.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from contextc._json import JSONObject
from tests.examples.fake_providers import KEY, StandIn, reply
from tests.examples.request_checks import RULES, refusal

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
QUESTION = "Is it nicer in Paris or in Atlantis?"
SYSTEM_PROMPT = "Answer in one sentence, from what the tools say."
NOWHERE = "There is no weather station in Atlantis."
PRINTED = f"""\
step 1: Let me look.
  get_weather {{'city': 'Paris'}}: 18 °C, rain
  get_weather {{'city': 'Atlantis'}}: {NOWHERE}
step 2: The tools say: 18 °C, rain {NOWHERE}
"""


@pytest.fixture
def provider() -> Iterator[StandIn]:
    with StandIn() as provider:
        yield provider


def run(name: str, *arguments: str, environment: dict[str, str]) -> str:
    """What an example prints, with nothing of the user's configuration in reach, and every warning an error."""
    result = subprocess.run(
        [sys.executable, "-I", "-X", "utf8", "-W", "error", str(EXAMPLES / f"{name}.py"), *arguments],
        env=environment,
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def environment_of(provider: StandIn, home: Path) -> dict[str, str]:
    return {**provider.environment(), "HOME": str(home), "XDG_CONFIG_HOME": str(home)}


@pytest.mark.thorough
def test_anthropic_gets_its_thinking_back_and_both_results_in_one_message(provider: StandIn, tmp_path: Path) -> None:
    """Guarantees 14.1, 10.1: what the formatter makes is what Anthropic's own SDK sends."""
    assert run("anthropic_messages", QUESTION, environment=environment_of(provider, tmp_path)) == PRINTED
    first, second = [body for _, body in provider.requests]
    assert first["messages"] == [{"role": "user", "content": [{"type": "text", "text": QUESTION}]}]
    assert first.keys() == second.keys() == {"model", "max_tokens", "system", "messages", "tools"}
    assert second["system"] == SYSTEM_PROMPT
    direct = {"type": "direct"}
    assert second["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": QUESTION}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "signed-1"},
                {"type": "text", "text": "Let me look."},
                {
                    "type": "tool_use",
                    "id": "call_1P",
                    "name": "get_weather",
                    "input": {"city": "Paris"},
                    "caller": direct,
                },
                {
                    "type": "tool_use",
                    "id": "call_1A",
                    "name": "get_weather",
                    "input": {"city": "Atlantis"},
                    "caller": direct,
                },
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "call_1P", "content": "18 °C, rain"},
                {"type": "tool_result", "tool_use_id": "call_1A", "content": NOWHERE, "is_error": True},
            ],
        },
    ]


@pytest.mark.thorough
def test_chat_completions_gets_a_tool_message_for_each_call(provider: StandIn, tmp_path: Path) -> None:
    """Guarantees 14.1, 10.1: what the formatter makes is what OpenAI's own SDK sends."""
    assert run("openai_chat", QUESTION, environment=environment_of(provider, tmp_path)) == PRINTED
    first, second = [body for _, body in provider.requests]
    system, user = {"role": "system", "content": SYSTEM_PROMPT}, {"role": "user", "content": QUESTION}
    assert first["messages"] == [system, user]
    assert second["messages"] == [
        system,
        user,
        {
            "role": "assistant",
            "content": "Let me look.",
            "tool_calls": [
                {
                    "id": "call_1P",
                    "type": "function",
                    "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'},
                },
                {
                    "id": "call_1A",
                    "type": "function",
                    "function": {"name": "get_weather", "arguments": '{"city": "Atlantis"}'},
                },
            ],
        },
        {"role": "tool", "tool_call_id": "call_1P", "content": "18 °C, rain"},
        {"role": "tool", "tool_call_id": "call_1A", "content": NOWHERE},
    ]


def message_item(number: int, text: str, phase: str) -> JSONObject:
    """A message item as the Responses API said it."""
    block: JSONObject = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {
        "type": "message",
        "id": f"msg_{number}",
        "role": "assistant",
        "status": "completed",
        "content": [block],
        "phase": phase,
    }


def asked(call_id: str, city: str) -> JSONObject:
    """A call as the Responses API said it."""
    return {
        "type": "function_call",
        "id": f"fc_{call_id}",
        "call_id": call_id,
        "name": "get_weather",
        "arguments": f'{{"city": "{city}"}}',
        "status": "completed",
    }


def test_responses_gets_its_items_back_as_they_came(provider: StandIn, tmp_path: Path) -> None:
    """Guarantees 14.1, 10.1: encrypted reasoning, ids and phases too, without which OpenAI would refuse or forget."""
    assert run("openai_responses", QUESTION, environment=environment_of(provider, tmp_path)) == PRINTED
    first, second = [body for _, body in provider.requests]
    assert first["input"] == [{"role": "user", "content": QUESTION}]
    assert second["instructions"] == SYSTEM_PROMPT
    assert second["input"] == [
        {"role": "user", "content": QUESTION},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "sealed-1"},
        message_item(1, "Let me look.", "commentary"),
        asked("call_1P", "Paris"),
        asked("call_1A", "Atlantis"),
        {"type": "function_call_output", "call_id": "call_1P", "output": "18 °C, rain"},
        {"type": "function_call_output", "call_id": "call_1A", "output": NOWHERE},
    ]


@pytest.mark.thorough
def test_gemini_gets_its_signature_back_and_both_results_in_one_content(provider: StandIn, tmp_path: Path) -> None:
    """Guarantees 14.1, 10.1: the SDK writes the signature's bytes in the other base64 alphabet; they are the same
    bytes.
    """
    assert run("gemini", QUESTION, environment=environment_of(provider, tmp_path)) == PRINTED
    first, second = [body for _, body in provider.requests]
    assert first["contents"] == [{"role": "user", "parts": [{"text": QUESTION}]}]
    assert second["systemInstruction"] == {"role": "user", "parts": [{"text": SYSTEM_PROMPT}]}
    assert second["contents"] == [
        {"role": "user", "parts": [{"text": QUESTION}]},
        {
            "role": "model",
            "parts": [
                {"text": "Let me look."},
                {
                    "functionCall": {"id": "call_1P", "name": "get_weather", "args": {"city": "Paris"}},
                    "thoughtSignature": "c2lnbmVkPz8-",
                },
                {"functionCall": {"id": "call_1A", "name": "get_weather", "args": {"city": "Atlantis"}}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {
                    "functionResponse": {
                        "id": "call_1P",
                        "name": "get_weather",
                        "response": {"output": "18 °C, rain"},
                    }
                },
                {"functionResponse": {"id": "call_1A", "name": "get_weather", "response": {"error": NOWHERE}}},
            ],
        },
    ]


@pytest.mark.thorough
def test_a_conversation_begun_with_anthropic_continues_with_openai(provider: StandIn, tmp_path: Path) -> None:
    """Guarantee 14.1: OpenAI gets all earlier messages and calls, and no reasoning of Anthropic's model."""
    printed = run("switch_provider", "How is Paris?", "And Cairo?", environment=environment_of(provider, tmp_path))
    assert printed == (
        "AnthropicFormatter: Let me look.\n"
        "  get_weather {'city': 'Paris'}: 18 °C, rain\n"
        "AnthropicFormatter: The tools say: 18 °C, rain\n"
        "OpenAIResponsesFormatter: Let me look.\n"
        "  get_weather {'city': 'Cairo'}: 34 °C, clear\n"
        "OpenAIResponsesFormatter: The tools say: 34 °C, clear\n"
    )
    formats = [format for format, _ in provider.requests]
    assert formats == ["anthropic", "anthropic", "openai_responses", "openai_responses"]
    before = [
        {"role": "user", "content": "How is Paris?"},
        {"role": "assistant", "content": "Let me look."},
        {"type": "function_call", "call_id": "call_1P", "name": "get_weather", "arguments": '{"city":"Paris"}'},
        {"type": "function_call_output", "call_id": "call_1P", "output": "18 °C, rain"},
        {"role": "assistant", "content": "The tools say: 18 °C, rain"},
        {"role": "user", "content": "And Cairo?"},
    ]
    third, fourth = [body for _, body in provider.requests[2:]]
    assert third["input"] == before
    assert fourth["input"] == [
        *before,
        {"type": "reasoning", "id": "rs_3", "summary": [], "encrypted_content": "sealed-3"},
        message_item(3, "Let me look.", "commentary"),
        asked("call_3C", "Cairo"),
        {"type": "function_call_output", "call_id": "call_3C", "output": "34 °C, clear"},
    ]


def test_a_page_of_the_vercel_sdk_becomes_what_stream_text_takes(tmp_path: Path) -> None:
    """Guarantees 14.1, 10.1: one UIMessage of two steps is two messages and a result, and needs neither key nor
    network.
    """
    assert json.loads(run("vercel", "And in Cairo?", environment={"HOME": str(tmp_path)})) == {
        "instructions": SYSTEM_PROMPT,
        "messages": [
            {"role": "user", "content": "What is the weather in Paris?"},
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "Let me look."},
                    {
                        "type": "tool-call",
                        "toolCallId": "call-1",
                        "toolName": "get_weather",
                        "input": {"city": "Paris"},
                    },
                ],
            },
            {
                "role": "tool",
                "content": [
                    {
                        "type": "tool-result",
                        "toolCallId": "call-1",
                        "toolName": "get_weather",
                        "output": {"type": "text", "value": "18 °C, rain"},
                    }
                ],
            },
            {"role": "assistant", "content": "It rains in Paris, at 18 °C."},
            {"role": "user", "content": "And in Cairo?"},
        ],
    }


def test_every_example_is_run_here() -> None:
    """An example that is never run stops working."""
    here = "".join([path.read_text() for path in Path(__file__).parent.glob("test_*.py")])
    runs = [path.stem for path in sorted(EXAMPLES.glob("*.py")) if f'run("{path.stem}"' in here or path.name in here]
    assert runs == sorted(path.stem for path in EXAMPLES.glob("*.py"))


QUESTIONS: dict[str, JSONObject] = {
    "anthropic": {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Paris?"}]},
    "openai_chat": {"model": "m", "messages": [{"role": "user", "content": "Paris?"}]},
    "openai_responses": {"model": "m", "input": [{"role": "user", "content": "Paris?"}]},
    "gemini": {"contents": [{"role": "user", "parts": [{"text": "Paris?"}]}]},
}
ANSWERS: dict[str, tuple[str, JSONObject, str]] = {
    "anthropic": (
        "messages",
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]},
        "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: c. Each `tool_use` "
        "block must have a corresponding `tool_result` block in the next message.",
    ),
    "openai_chat": (
        "messages",
        {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{}"}}]},
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. "
        "The following tool_call_ids did not have response messages: c",
    ),
    "openai_responses": (
        "input",
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        "No tool output found for function call c.",
    ),
    "gemini": (
        "contents",
        {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}, "thoughtSignature": "c2ln"}]},
        "Please ensure that the number of function response parts is equal to the number of function call parts of the "
        "function call turn.",
    ),
}


@pytest.mark.parametrize("format", RULES)
def test_the_stand_in_refuses_a_call_without_its_result(format: str) -> None:
    """It would prove nothing if it took everything."""
    question = QUESTIONS[format]
    name, call, text = ANSWERS[format]
    again = question[name][-1]
    assert refusal(format, question) is None
    refused = refusal(format, {**question, name: [*question[name], call, again]})
    assert refused is not None
    status, body = refused
    assert (status, body["error"]["message"]) == (400, text)


@pytest.mark.parametrize("format", RULES)
def test_the_stand_in_refuses_an_unknown_role(format: str) -> None:
    """It would prove nothing if it took everything."""
    question = QUESTIONS[format]
    name = ANSWERS[format][0]
    assert refusal(format, {**question, name: [*question[name], {**question[name][0], "role": "robot"}]}) is not None


def test_the_stand_in_answers_over_http_as_it_should(provider: StandIn) -> None:
    """A refusal is a 400 that says why, a wrong key a 401, a wrong path a 404; and a question gets its call."""

    def post(path: str, body: JSONObject, key: str = KEY) -> tuple[int, JSONObject]:
        headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
        request = Request(provider.url + path, json.dumps(body).encode(), headers)
        try:
            with urlopen(request, timeout=120) as answer:
                return answer.status, json.loads(answer.read())
        except HTTPError as error:
            with error:
                return error.code, json.loads(error.read())

    question = QUESTIONS["anthropic"]
    assert post("/v1/messages", question) == (200, reply("anthropic", 1, "Let me look.", ["Paris"]))
    assert post("/v1/messages", {**question, "temperature": 1})[0] == 400
    assert post("/v1/messages", question, key="another")[0] == 401
    assert post("/v1/complete", question)[0] == 404
    assert len(provider.requests) == 2
