"""Unusual JSON values for tests of endpoints that accept any input."""

from hypothesis import strategies as st

WORDS = st.sampled_from(
    (
        "role", "content", "messages", "input", "contents", "parts", "type", "text", "tool_calls", "tool_use", "id",
        "tool_result", "tool_call_id", "function", "name", "arguments", "model", "system", "tools", "user", "assistant",
        "tool", "functionCall", "image_url", "url", "source", "data", "uuid", "parentUuid", "payload", "session_meta",
        "message", "seq", "contextc", "version", "request", "response", "log", "entries", "stream", "max_tokens",
    )
)  # fmt: skip
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), 1 << 63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | WORDS
    | st.text(max_size=8)
)
ANYTHING = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS | st.text(max_size=4), inner, max_size=5),
    max_leaves=25,
)
MESSAGE = st.fixed_dictionaries(
    {"role": st.sampled_from(("user", "assistant", "tool", "system", "model", "x")), "content": ANYTHING},
    optional={"tool_calls": ANYTHING, "parts": ANYTHING, "tool_call_id": ANYTHING, "type": WORDS},
)
REQUEST = st.fixed_dictionaries(
    {"messages": st.lists(MESSAGE | ANYTHING, max_size=4)},
    optional={"model": ANYTHING, "tools": ANYTHING, "system": ANYTHING, "max_tokens": ANYTHING, "stream": ANYTHING},
)
BODY = REQUEST | st.lists(MESSAGE | ANYTHING, max_size=4) | ANYTHING
