"""Sessions of SDKs and frameworks, recorded by record_sessions.py."""

import os
import subprocess
from pathlib import Path
from typing import Any

from tests.fake_vendors import KEY, FakeVendors, Reply
from tests.fake_vendors.replies import ScriptedCall
from tests.observation.session_recorder import Recorder, Wire, log

# ── SDKs ──────────────────────────────────────────────────────────────────────────────────────────────────────────────

LOOK: Wire = {"type": "object", "properties": {"thing": {"type": "string"}}, "required": ["thing"]}
LOOKS = Reply("I look.", [ScriptedCall("look", {"thing": "door"})])
FUNCTION: Wire = {"name": "look", "description": "Look at a thing.", "parameters": LOOK}


def record_anthropic(recorder: Recorder, folder: Path) -> None:
    import anthropic

    tool: Wire = {"name": "look", "description": "Look at a thing.", "input_schema": LOOK}

    def client_of(standin: FakeVendors) -> Any:
        return anthropic.Anthropic(base_url=standin.url("anthropic"), api_key=KEY)

    def turn(client: Any, messages: list[Wire], text: str, **more: Any) -> None:
        messages.append({"role": "user", "content": text})
        for _ in range(5):
            given: Wire = {"model": "claude-opus-5-5", "max_tokens": 1000, "system": "Be brief.", **more}
            if given.pop("streamed", False):
                with client.messages.stream(messages=messages, **given) as stream:
                    reply = stream.get_final_message()
            else:
                reply = client.messages.create(messages=messages, **given)
            content = [block.model_dump(mode="json", exclude_none=True) for block in reply.content]
            messages.append({"role": "assistant", "content": content})
            calls = [block["id"] for block in content if block["type"] == "tool_use"]
            if not calls:
                return
            results: list[Wire] = [{"type": "tool_result", "tool_use_id": id, "content": "It is open."} for id in calls]
            messages.append({"role": "user", "content": results})

    for streamed in (False, True):
        with recorder.run({"#m1": [LOOKS], "#m2": [LOOKS]}, strict=True) as standin:
            client, messages = client_of(standin), list[Wire]()
            turn(client, messages, "Look at the door. #m1", tools=[tool], streamed=streamed)
            turn(client, messages, "Look again. #m2", tools=[tool], streamed=streamed)
            client.messages.count_tokens(model="claude-opus-5-5", system="Be brief.", messages=messages, tools=[tool])
            turn(client, messages, "Thank you. #m3", tools=[tool], streamed=streamed)
    for user in ("alice", "bob"):  # the same words with an id of the user
        with recorder.run({}, strict=True) as standin:
            client, messages = client_of(standin), list[Wire]()
            for text in ("Hello. #m1", "How are you? #m2", "Bye. #m3"):
                turn(client, messages, f"{text} I am {user}.", metadata={"user_id": user})


def record_openai(recorder: Recorder, folder: Path) -> None:
    import openai

    def client_of(standin: FakeVendors) -> Any:
        return openai.OpenAI(base_url=standin.url("openai_chat"), api_key=KEY)

    def chat(client: Any, messages: list[Wire], text: str, **more: Any) -> None:
        messages.append({"role": "user", "content": text})
        for _ in range(5):
            reply = client.chat.completions.create(model="gpt-4.1", messages=messages, **more).choices[0].message
            messages.append(reply.model_dump(mode="json", exclude_none=True, exclude={"annotations", "refusal"}))
            if not reply.tool_calls:
                return
            for each in reply.tool_calls:
                messages.append({"role": "tool", "tool_call_id": each.id, "content": "It is open."})

    tools = [{"type": "function", "function": FUNCTION}]
    for name in ("one", "two"):  # both begin alike
        with recorder.run({"#m1": [LOOKS], "#m2": [Reply(f"Number {name}.")]}, strict=True) as standin:
            messages: list[Wire] = [{"role": "system", "content": "Be brief."}]
            for text in ("Look at the door. #m1", "Which number? #m2", f"It is {name}. #m3"):
                chat(client_of(standin), messages, text, tools=tools)
    with recorder.run({"#m1": [LOOKS]}, strict=True) as standin:  # the cache key of an application, and a stream
        messages = [{"role": "system", "content": "Be brief."}]
        for text in ("Look at the house. #m1", "Again. #m2", "Thank you. #m3"):
            chat(client_of(standin), messages, text, tools=tools, prompt_cache_key="application")
    with recorder.run({}, strict=True) as standin:
        messages = [{"role": "system", "content": "Be brief."}]
        for text in ("Tell me of houses. #m1", "More. #m2"):
            messages.append({"role": "user", "content": text})
            stream = client_of(standin).chat.completions.create(model="gpt-4.1", messages=messages, stream=True)
            said = "".join([event.choices[0].delta.content or "" for event in stream if event.choices])
            messages.append({"role": "assistant", "content": said})

    function = {"type": "function", **FUNCTION, "strict": False}
    for name in ("one", "two"):  # no state at the provider
        with recorder.run({"#m1": [LOOKS], "#m2": [Reply(f"Number {name}.")]}, strict=True) as standin:
            items: list[Wire] = []
            for text in ("Look at the door. #m1", "Which number? #m2", f"It is {name}. #m3"):
                items.append({"role": "user", "content": text})
                for _ in range(5):
                    reply = client_of(standin).responses.create(
                        model="gpt-5.6", instructions="Be brief.", input=items, tools=[function], store=False
                    )
                    items += [each.model_dump(mode="json", exclude_none=True) for each in reply.output]
                    calls = [each for each in reply.output if each.type == "function_call"]
                    items += [
                        {"type": "function_call_output", "call_id": each.call_id, "output": "Open."} for each in calls
                    ]
                    if not calls:
                        break
    for streamed in (False, True):  # the provider has the state
        with recorder.run({"#m1": [LOOKS], "#m2": []}, strict=True) as standin:
            before, given = None, Wire()
            for text in ("Look at the door. #m1", "Once more. #m2", "Thank you. #m3"):
                sent: Any = text
                for _ in range(5):
                    given = {"model": "gpt-5.6", "input": sent, "tools": [function], "previous_response_id": before}
                    if streamed:
                        with client_of(standin).responses.stream(**given) as stream:
                            reply = stream.get_final_response()
                    else:
                        reply = client_of(standin).responses.create(**given)
                    before = reply.id
                    calls = [each for each in reply.output if each.type == "function_call"]
                    sent = [
                        {"type": "function_call_output", "call_id": each.call_id, "output": "Open."} for each in calls
                    ]
                    if not calls:
                        break


def record_gemini(recorder: Recorder, folder: Path) -> None:
    from google import genai
    from google.genai import types

    def look(thing: str) -> str:
        """Look at a thing."""
        return f"The {thing} is open."

    for name in ("one", "two"):
        with recorder.run({"#m1": [LOOKS], "#m2": [Reply(f"Number {name}.")]}) as standin:
            options: Any = {"base_url": standin.url("gemini")}
            client: Any = genai.Client(api_key=KEY, vertexai=False, http_options=options)
            config = types.GenerateContentConfig(system_instruction="Be brief.", tools=[look])
            chat = client.chats.create(model="gemini-3.6-flash", config=config)
            chat.send_message("Look at the door. #m1")
            chat.send_message("Which number? #m2")
            history: Any = chat.get_history()
            client.models.count_tokens(model="gemini-3.6-flash", contents=history)
            if name == "two":
                for _ in chat.send_message_stream("It is two. #m3"):
                    pass
            else:
                chat.send_message("It is one. #m3")


def record_mistral(recorder: Recorder, folder: Path) -> None:
    from mistralai.client import Mistral

    for name in ("one", "two"):
        with recorder.run({"#m1": [LOOKS], "#m2": [Reply(f"Number {name}.")]}, strict=True) as standin:
            client: Any = Mistral(api_key=KEY, server_url=standin.url("mistral").removesuffix("/v1"))
            messages: list[Any] = [{"role": "system", "content": "Be brief."}]
            for text in ("Look at the door. #m1", "Which number? #m2", f"It is {name}. #m3"):
                messages.append({"role": "user", "content": text})
                for _ in range(5):
                    given = {"model": "mistral-large-latest", "messages": messages}
                    reply = client.chat.complete(**given, tools=[{"type": "function", "function": FUNCTION}])
                    messages.append(reply.choices[0].message)
                    calls: list[Any] = reply.choices[0].message.tool_calls or []
                    messages += [{"role": "tool", "tool_call_id": each.id, "content": "Open."} for each in calls]
                    if not calls:
                        break


def record_ollama(recorder: Recorder, folder: Path) -> None:
    from ollama import Client

    for name in ("one", "two"):
        with recorder.run({"#m1": [LOOKS], "#m2": [Reply(f"Number {name}.")]}, strict=True) as standin:
            client: Any = Client(standin.url(), headers={"Authorization": f"Bearer {KEY}"})
            messages: list[Any] = [{"role": "system", "content": "Be brief."}]
            for text in ("Look at the door. #m1", "Which number? #m2", f"It is {name}. #m3"):
                messages.append({"role": "user", "content": text})
                for _ in range(5):
                    tools: Any = [{"type": "function", "function": FUNCTION}]
                    reply = client.chat(model="qwen3:8b", messages=messages, tools=tools, think=False)
                    messages.append(reply.message)
                    calls: list[Any] = reply.message.tool_calls or []
                    messages += [
                        {"role": "tool", "tool_name": each.function.name, "content": "Open."} for each in calls
                    ]
                    if not calls:
                        break


# ── frameworks ────────────────────────────────────────────────────────────────────────────────────────────────────────

PYDANTIC_AI = """
from pydantic_ai import Agent
agent = Agent("openai-chat:gpt-4.1" if {number} else "anthropic:claude-sonnet-4-5", system_prompt="Be brief.")
@agent.tool_plain
def look(thing: str) -> str:
    "Look at a thing."
    return f"The {{thing}} is open."
history = None
for text in ("Look at the door. #m1", "Again. #m2", "Thank you. #m3"):
    history = agent.run_sync(text, message_history=history).all_messages()
"""
OPENAI_AGENTS = """
import agents
agents.set_tracing_disabled(True)
@agents.function_tool
def look(thing: str) -> str:
    "Look at a thing."
    return f"The {{thing}} is open."
helper = agents.Agent(name="Helper", instructions="You help.", tools=[look], model="gpt-5.4")
main = agents.Agent(name="Main", instructions="Be brief.", tools=[look] if {number} else
    [look, helper.as_tool("ask_helper", "Ask the helper.")], model="gpt-5.4")
given = []
for text in ("Look at the door. #m1", "Again. #m2", "Thank you. #m3"):
    result = agents.Runner.run_sync(main, given + [{{"role": "user", "content": text}}])
    given = result.to_input_list()
"""
LANGCHAIN = """
from langchain_core.tools import tool
from langchain_core.messages import SystemMessage, HumanMessage, ToolMessage
@tool
def look(thing: str) -> str:
    "Look at a thing."
    return f"The {{thing}} is open."
if {number}:
    from langchain_openai import ChatOpenAI
    model = ChatOpenAI(model="gpt-4.1").bind_tools([look])
else:
    from langchain_anthropic import ChatAnthropic
    model = ChatAnthropic(model="claude-sonnet-4-5").bind_tools([look])
messages = [SystemMessage("Be brief.")]
for text in ("Look at the door. #m1", "Again. #m2", "Thank you. #m3"):
    messages.append(HumanMessage(text))
    while True:
        reply = model.invoke(messages)
        messages.append(reply)
        for call in reply.tool_calls:
            messages.append(ToolMessage(look.invoke(call["args"]), tool_call_id=call["id"]))
        if not reply.tool_calls:
            break
"""
LITELLM = """
import litellm, os
tools = [{{"type": "function", "function": {{"name": "look", "description": "Look at a thing.", "parameters":
    {{"type": "object", "properties": {{"thing": {{"type": "string"}}}}, "required": ["thing"]}}}}}}]
model = "openai/gpt-4.1" if {number} else "anthropic/claude-sonnet-4-5"
messages = [{{"role": "system", "content": "Be brief."}}]
for text in ("Look at the door. #m1", "Again. #m2", "Thank you. #m3"):
    messages.append({{"role": "user", "content": text}})
    while True:
        reply = litellm.completion(model=model, messages=messages, tools=tools).choices[0].message
        messages.append(reply.model_dump())
        for call in reply.tool_calls or []:
            messages.append({{"role": "tool", "tool_call_id": call.id, "content": "Open."}})
        if not reply.tool_calls:
            break
"""
AI_SDK = """
import {{ generateText, tool, jsonSchema, stepCountIs }} from "ai";
import {{ createAnthropic }} from "@ai-sdk/anthropic";
import {{ createOpenAI }} from "@ai-sdk/openai";
const env = process.env;
const model = {number} ? createOpenAI({{ baseURL: env.OPENAI_BASE_URL }})("gpt-5.4")
  : createAnthropic({{ baseURL: env.ANTHROPIC_BASE_URL + "/v1" }})("claude-sonnet-4-5");
const properties = {{ thing: {{ type: "string" }} }};
const inputSchema = jsonSchema({{ type: "object", properties, required: ["thing"] }});
const look = tool({{ description: "Look at a thing.", inputSchema, execute: async () => "Open." }});
let messages = [];
for (const text of ["Look at the door. #m1", "Again. #m2", "Thank you. #m3"]) {{
  messages.push({{ role: "user", content: text }});
  const given = {{ model, system: "Be brief.", messages, tools: {{ look }} }};
  const result = await generateText({{ ...given, stopWhen: stepCountIs(4) }});
  messages = messages.concat(result.response.messages);
}}
"""


def record_frameworks(recorder: Recorder, folder: Path) -> None:
    python, packages = os.environ.get("FRAMEWORKS_PYTHON", ""), os.environ.get("AI_SDK_FOLDER", "")
    programs = {
        "pydantic-ai": [python, "-c", PYDANTIC_AI],
        "openai-agents": [python, "-c", OPENAI_AGENTS],
        "langchain": [python, "-c", LANGCHAIN],
        "litellm": [python, "-c", LITELLM],
        "ai": ["node", "--input-type=module", "-e", AI_SDK],
    }
    for name, (program, *options, source) in programs.items():
        for number in (0, 1):
            helper = Reply("I ask.", [ScriptedCall("ask_helper", {"input": "Look at the window. #a1"})])
            first = [LOOKS, helper] if name == "openai-agents" and not number else [LOOKS]
            with recorder.run({"#m1": first, "#m2": [LOOKS], "#a1": [LOOKS]}) as standin:
                environment = {
                    "PATH": os.environ["PATH"], "HOME": str(folder), "OPENAI_API_KEY": KEY, "ANTHROPIC_API_KEY": KEY,
                    "OPENAI_BASE_URL": standin.url("openai_chat"), "ANTHROPIC_BASE_URL": standin.url(),
                    "ANTHROPIC_API_BASE": standin.url(), "ANTHROPIC_API_URL": standin.url(),
                    "LITELLM_LOCAL_MODEL_COST_MAP": "True", "HTTPS_PROXY": "http://127.0.0.1:9",
                    "NO_PROXY": "127.0.0.1",
                }  # fmt: skip
                done = subprocess.run(
                    [program, *options, source.format(number=number)], env=environment, capture_output=True, text=True,
                    timeout=120, cwd=packages if name == "ai" else folder, check=False,
                )  # fmt: skip
                log("  ", name, number, done.returncode, done.stderr[-600:] if done.returncode else "")
