"""Names of spans, attributes and metrics.

The names of GenAI are those of OpenTelemetry's semantic conventions for generative AI, as of 2026-11-19: the registry,
spans and metrics in `model/gen-ai/` of the repository open-telemetry/semantic-conventions-genai, where they moved from
open-telemetry/semantic-conventions 1.44 (package opentelemetry-semantic-conventions 0.66b2, which has the same values).
All of them have the status "development": they may change, and then they change here. The import of spans reads the
same names, and older ones (`interchange/sources/opentelemetry.py`).

Names that begin with `contextc` are ours. docs/telemetry.md describes them.
"""

SCOPE = "contextc"
"""The instrumentation scope of spans and metrics."""

# ── operations ────────────────────────────────────────────────────────────────────────────────────────────────────────

INVOKE_AGENT, CHAT, EXECUTE_TOOL = "invoke_agent", "chat", "execute_tool"
FUNCTION = "function"
OTHER = "_OTHER"
"""The conventions' name for a value that is not one of a known set."""

# ── attributes ────────────────────────────────────────────────────────────────────────────────────────────────────────

OPERATION_NAME = "gen_ai.operation.name"
PROVIDER_NAME = "gen_ai.provider.name"
AGENT_NAME = "gen_ai.agent.name"
CONVERSATION_ID = "gen_ai.conversation.id"
REQUEST_MODEL = "gen_ai.request.model"
REQUEST_STREAM = "gen_ai.request.stream"
RESPONSE_MODEL = "gen_ai.response.model"
FINISH_REASONS = "gen_ai.response.finish_reasons"
TIME_TO_FIRST_CHUNK = "gen_ai.response.time_to_first_chunk"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
CACHE_READ_TOKENS = "gen_ai.usage.cache_read.input_tokens"
CACHE_CREATION_TOKENS = "gen_ai.usage.cache_creation.input_tokens"
REASONING_TOKENS = "gen_ai.usage.reasoning.output_tokens"
TOKEN_TYPE = "gen_ai.token.type"
TOOL_NAME = "gen_ai.tool.name"
TOOL_TYPE = "gen_ai.tool.type"
TOOL_DESCRIPTION = "gen_ai.tool.description"
TOOL_CALL_ID = "gen_ai.tool.call.id"
ERROR_TYPE = "error.type"
SERVER_ADDRESS, SERVER_PORT = "server.address", "server.port"

SETTINGS = {
    "max_tokens": "gen_ai.request.max_tokens",
    "max_completion_tokens": "gen_ai.request.max_tokens",
    "max_output_tokens": "gen_ai.request.max_tokens",
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "top_k": "gen_ai.request.top_k",
    "frequency_penalty": "gen_ai.request.frequency_penalty",
    "presence_penalty": "gen_ai.request.presence_penalty",
    "seed": "gen_ai.request.seed",
}
"""Fields of requests, and their attributes. Values are numbers."""

SYSTEM_INSTRUCTIONS = "gen_ai.system_instructions"
INPUT_MESSAGES = "gen_ai.input.messages"
OUTPUT_MESSAGES = "gen_ai.output.messages"
TOOL_DEFINITIONS = "gen_ai.tool.definitions"
TOOL_ARGUMENTS = "gen_ai.tool.call.arguments"
TOOL_RESULT = "gen_ai.tool.call.result"
CONTENT = frozenset(
    {SYSTEM_INSTRUCTIONS, INPUT_MESSAGES, OUTPUT_MESSAGES, TOOL_DEFINITIONS, TOOL_ARGUMENTS, TOOL_RESULT}
)
"""Attributes with content of conversations. They are set only if that is asked for."""

FINISHES = {"tool_calls": "tool_call"}
"""Our finish reasons, and those in output messages where they differ."""

PROVIDERS = {
    "openai-session": "openai",
    "openai-conversation": "openai",
    "openai-chat": "openai",
    "gemini": "gcp.gemini",
    "bedrock": "aws.bedrock",
    "mistral": "mistral_ai",
    "xai": "x_ai",
    "moonshotai": "moonshot_ai",
}
"""Our names of providers, and those of the conventions where they differ."""

# ── metrics ───────────────────────────────────────────────────────────────────────────────────────────────────────────

CLIENT_DURATION = "gen_ai.client.operation.duration"
FIRST_CHUNK_DURATION = "gen_ai.client.operation.time_to_first_chunk"
AGENT_DURATION = "gen_ai.invoke_agent.duration"
TOOL_DURATION = "gen_ai.execute_tool.duration"
TOKEN_USAGE = "gen_ai.client.token.usage"
DURATION_BUCKETS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
TOKEN_BUCKETS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864)

# ── ours ──────────────────────────────────────────────────────────────────────────────────────────────────────────────

TURN = "contextc.turn"
TURN_FINISH = "contextc.turn.finish"
TURN_STEPS = "contextc.turn.steps"
TURN_TOOL_CALLS = "contextc.turn.tool_calls"
COST = "contextc.cost"
REQUEST = "contextc.request"
MODE = "contextc.mode"
EPOCH = "contextc.epoch"
PREFIX_BREAK = "contextc.prefix.break"
"""Why the request shares less than the whole request before it: the reason of the epoch that begins with it."""
SHARED_TOKENS, SHARED_BYTES = "contextc.prefix.shared_tokens", "contextc.prefix.shared_bytes"
WINDOW_USED, WINDOW_AVAILABLE = "contextc.input.tokens", "contextc.input.available_tokens"
LEFT_OUT = "contextc.messages.left_out"
