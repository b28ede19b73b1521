"""contextc compiles a stored conversation into exactly what one model should see.

Names are loaded when they are first used, so that importing the package costs next to nothing.
"""

from importlib import import_module

TYPE_CHECKING = False  # what type checkers take for true; typing's own would be most of what importing costs
if TYPE_CHECKING:
    from contextc.errors import (
        Conflict,
        ContextcError,
        ConversationBusy,
        ConversationExists,
        InvalidImport,
        InvalidInput,
        InvalidMessage,
        InvalidReply,
        InvalidRequest,
        InvalidSetting,
        KeyReused,
        LeaseLost,
        SchemaTooNew,
        StaleParent,
        StoreBusy,
        StoreCorrupt,
        StoreError,
        StoreFull,
        StoreReadOnly,
        StoreUnavailable,
        UnknownBranch,
        UnknownConversation,
        UnknownMessage,
    )
    from contextc.formats import (
        AnthropicFormatter,
        GeminiFormatter,
        OpenAIFormatter,
        OpenAIResponsesFormatter,
        VercelFormatter,
        VercelLegacyFormatter,
        formatter,
    )
    from contextc.manager import MessageManager
    from contextc.messages import (
        Hint,
        Media,
        Message,
        Native,
        Part,
        Reasoning,
        Text,
        ToolCall,
        ToolResult,
        Usage,
        assistant,
        system,
        tool_call,
        tool_result,
        user,
    )
    from contextc.store import Branch, Conversation, Lease, Recovered, Store, Stream, open_store
    from contextc.tools import NativeTool, Tool
    from contextc.wire import ConvertedBody, ConvertedMessages, Repaired, Violation, convert, fix, lint

__all__ = [
    "AnthropicFormatter",
    "Branch",
    "Conflict",
    "ContextcError",
    "Conversation",
    "ConversationBusy",
    "ConversationExists",
    "ConvertedBody",
    "ConvertedMessages",
    "GeminiFormatter",
    "Hint",
    "InvalidImport",
    "InvalidInput",
    "InvalidMessage",
    "InvalidReply",
    "InvalidRequest",
    "InvalidSetting",
    "KeyReused",
    "Lease",
    "LeaseLost",
    "Media",
    "Message",
    "MessageManager",
    "Native",
    "NativeTool",
    "OpenAIFormatter",
    "OpenAIResponsesFormatter",
    "Part",
    "Reasoning",
    "Recovered",
    "Repaired",
    "SchemaTooNew",
    "StaleParent",
    "Store",
    "StoreBusy",
    "StoreCorrupt",
    "StoreError",
    "StoreFull",
    "StoreReadOnly",
    "StoreUnavailable",
    "Stream",
    "Text",
    "Tool",
    "ToolCall",
    "ToolResult",
    "UnknownBranch",
    "UnknownConversation",
    "UnknownMessage",
    "Usage",
    "VercelFormatter",
    "VercelLegacyFormatter",
    "Violation",
    "assistant",
    "convert",
    "fix",
    "formatter",
    "lint",
    "open_store",
    "system",
    "tool_call",
    "tool_result",
    "user",
]

_ROOMS = ("errors", "messages", "tools", "store", "wire", "formats", "manager")


def __getattr__(name: str) -> object:
    if name == "__version__":
        return import_module("importlib.metadata").version(__name__)
    if name in __all__:
        for room in _ROOMS:
            found = getattr(import_module(f"{__name__}.{room}"), name, None)
            if found is not None:
                globals()[name] = found
                return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
