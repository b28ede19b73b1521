"""Replies and streams of OpenAI's Responses API as messages, and as items again."""

from contextc import Message
from contextc._json import JSON, JSONObject
from tests.formats.test_openai_responses import RESPONSES, normal
from tests.formats.traffic import accepted, events

# These two are taken from the recordings in pydantic-ai's test suite (MIT licence), shortened where nothing is read:
# tests/models/cassettes/test_bedrock_mantle/test_reused_tool_call_ids_gpt_5_5.yaml and
# tests/models/cassettes/test_bedrock_mantle/test_reused_tool_call_ids[stream].yaml.
REAL_REPLY: JSONObject = {
    "id": "resp_s26hlvtpsq5c245236bhqydnjyjzyz736qmluexul46wwch4q7ya",
    "model": "openai.gpt-5.5",
    "status": "completed",
    "object": "response",
    "output": [
        {
            "encrypted_content": "rsn_5ZVrif4J0bXIqmWdledj7QIFePImBNq8lg54Qeb1NgCacu8KM",
            "id": "rs_7a9e2d042ef4576298b85e8a6e87701f",
            "summary": [],
            "type": "reasoning",
        },
        {
            "content": [{"annotations": [], "logprobs": [], "text": "OK", "type": "output_text"}],
            "id": "msg_99c2aff743585d46b709fc0e98b912a4",
            "phase": "final_answer",
            "role": "assistant",
            "status": "completed",
            "type": "message",
        },
    ],
    "usage": {
        "input_tokens": 93,
        "input_tokens_details": {"cache_write_tokens": 2, "cached_tokens": 64},
        "output_tokens": 17,
        "output_tokens_details": {"reasoning_tokens": 10},
        "total_tokens": 110,
    },
}
REAL_STREAM = """\
: keep-alive

data: {"response":{"error":null,"id":"resp_yqqp","model":"openai.gpt-5.6-luna","output":[],"status":"in_progress"},\
"sequence_number":0,"type":"response.created"}
event: response.created

data: {"item":{"arguments":"","call_id":"call_0","id":"fc_8189b908df5d54828dd1a219b8f647cb","name":"first_tool",\
"status":"in_progress","type":"function_call"},"output_index":0,"sequence_number":2,"type":"response.output_item.added"}
event: response.output_item.added

data: {"delta":"{}","item_id":"fc_8189b908df5d54828dd1a219b8f647cb","output_index":0,"sequence_number":3,\
"type":"response.function_call_arguments.delta"}
event: response.function_call_arguments.delta

data: {"item":{"arguments":"{}","call_id":"call_0","id":"fc_8189b908df5d54828dd1a219b8f647cb","name":"first_tool",\
"status":"completed","type":"function_call"},"output_index":0,"sequence_number":5,"type":"response.output_item.done"}
event: response.output_item.done

data: {"response":{"error":null,"id":"resp_yqqp","model":"openai.gpt-5.6-luna","output":[{"arguments":"{}",\
"call_id":"call_0","id":"fc_8189b908df5d54828dd1a219b8f647cb","name":"first_tool","status":"completed",\
"type":"function_call"}],"status":"completed","usage":{"input_tokens":88,"input_tokens_details":{"cached_tokens":0},\
"output_tokens":14,"output_tokens_details":{"reasoning_tokens":0}}},"sequence_number":6,"type":"response.completed"}
event: response.completed

data: [DONE]
"""


def test_real_replies_become_messages_and_go_back_as_the_same_items() -> None:
    """Guarantees 10.1, 10.5: whole or streamed, in every recording available."""
    replies = [REAL_REPLY, REAL_STREAM, *(exchange.reply for exchange in accepted("openai_responses"))]
    for reply in replies:
        message, items = _decoded(reply)
        assert message.role == "assistant"
        assert message.finish == ("tool_calls" if message.tool_calls else "stop")
        assert message.usage is not None
        assert message.usage.output > 0
        assert normal(list(RESPONSES.encode([message]).messages)) == normal(items)


def _decoded(reply: JSON) -> tuple[Message, JSON]:
    if not isinstance(reply, str):
        return RESPONSES.decode_reply(reply), reply["output"]
    stream = events(reply)
    return RESPONSES.decode_stream(stream), stream[-1]["response"]["output"]
