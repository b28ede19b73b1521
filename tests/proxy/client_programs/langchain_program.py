"""LangChain's chat models with a tool, then a stream. Usage: PROGRAM anthropic|openai_chat|openai_responses."""

import json
import sys

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool


@tool
def look(thing: str) -> str:
    """Look at a thing."""
    return f"{thing} is red"


def make_model(kind: str) -> BaseChatModel:
    if kind == "anthropic":
        from langchain_anthropic import ChatAnthropic

        return ChatAnthropic(model="claude-sonnet-4-5", max_tokens=500)
    from langchain_openai import ChatOpenAI

    if kind == "openai_responses":
        return ChatOpenAI(model="gpt-5.4", use_responses_api=True)
    return ChatOpenAI(model="gpt-4.1", stream_usage=True)


model = make_model(sys.argv[1]).bind_tools([look])
messages = [HumanMessage("Look at the door. #call")]
reply = model.invoke(messages)
(call,) = reply.tool_calls
messages += [reply, ToolMessage(look.invoke(call["args"]), tool_call_id=call["id"])]
reply = model.invoke(messages)
messages += [reply, HumanMessage("Thank you.")]
streamed = "".join([part.text for part in model.stream(messages)])
print(json.dumps([reply.text, streamed]))
