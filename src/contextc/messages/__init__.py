"""Messages and their parts: immutable values, their JSON form, their hash and their validation."""

from contextc.messages.constructors import Content, assistant, system, tool_call, tool_result, user
from contextc.messages.message import (
    Message,
    Role,
    Status,
    Usage,
    canonical_content,
    decode_message,
    encode_message,
    hash_content,
    make_chain_id,
    make_root_id,
)
from contextc.messages.parts import (
    AnyPart,
    Extra,
    Media,
    Part,
    ProviderBlock,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    UserNotice,
)
from contextc.messages.validation import ValidatedMessage, validate_message

__all__ = [
    "AnyPart",
    "Content",
    "Extra",
    "Media",
    "Message",
    "Part",
    "ProviderBlock",
    "Reasoning",
    "Role",
    "Status",
    "Text",
    "ToolCall",
    "ToolResult",
    "Usage",
    "UserNotice",
    "ValidatedMessage",
    "assistant",
    "canonical_content",
    "decode_message",
    "encode_message",
    "hash_content",
    "make_chain_id",
    "make_root_id",
    "system",
    "tool_call",
    "tool_result",
    "user",
    "validate_message",
]
