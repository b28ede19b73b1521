"""The client library of LiteLLM with a tool, then a stream. Usage: PROGRAM anthropic|openai_chat|openai_responses."""

import json
import sys

import litellm

MODELS = {
    "anthropic": "anthropic/claude-sonnet-4-5",
    "openai_chat": "openai/gpt-4.1",
    "openai_responses": "openai/responses/gpt-5.4",
}
LOOK = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Look at a thing.",
        "parameters": {"type": "object", "properties": {"thing": {"type": "string"}}, "required": ["thing"]},
    },
}
litellm.suppress_debug_info = True
options = {"model": MODELS[sys.argv[1]], "tools": [LOOK], "max_tokens": 500, "num_retries": 0}
messages = [{"role": "user", "content": "Look at the door. #call"}]
reply = litellm.completion(messages=messages, **options).choices[0].message
(call,) = reply.tool_calls
thing = json.loads(call.function.arguments)["thing"]
messages += [reply.model_dump(), {"role": "tool", "tool_call_id": call.id, "content": f"{thing} is red"}]
reply = litellm.completion(messages=messages, **options).choices[0].message
messages += [{"role": "assistant", "content": reply.content}, {"role": "user", "content": "Thank you."}]
stream = litellm.completion(messages=messages, stream=True, stream_options={"include_usage": True}, **options)
streamed = "".join([part.choices[0].delta.content or "" for part in stream if part.choices])
print(json.dumps([reply.content, streamed]))
