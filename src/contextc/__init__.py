"""contextc compiles a stored conversation into exactly what one model should see.

Names are imported on first use, which keeps `import contextc` fast.
"""

from importlib import import_module

TYPE_CHECKING = False  # True for type checkers; importing typing would take most of the import time
if TYPE_CHECKING:
    from contextc.compiler import Attempt, Compiled, Cost, MessageCompiler
    from contextc.compiler.ledger.sessions import SessionManager
    from contextc.compiler.manifest import Manifest
    from contextc.errors import (
        Conflict,
        ContextcError,
        ContextOverflow,
        ConversationBusy,
        ConversationExists,
        FragmentFailed,
        InternalError,
        InvalidImport,
        InvalidInput,
        InvalidMessage,
        InvalidReply,
        InvalidRequest,
        InvalidSetting,
        KeyReused,
        LeaseLost,
        NothingNew,
        ProviderFailed,
        SchemaTooNew,
        StaleCompile,
        StaleParent,
        StoreBusy,
        StoreCorrupt,
        StoreError,
        StoreFull,
        StoreReadOnly,
        StoreUnavailable,
        UnknownBranch,
        UnknownChannel,
        UnknownConversation,
        UnknownMessage,
        UnknownModel,
        UnknownRequest,
    )
    from contextc.executor import AgentExecutor, Limits, Turn, TurnResult
    from contextc.formats import (
        AnthropicFormatter,
        BedrockFormatter,
        ClaudeCodeFormatter,
        CodexFormatter,
        Formatter,
        GeminiFormatter,
        MistralFormatter,
        OllamaFormatter,
        OpenAIFormatter,
        OpenAIResponsesFormatter,
        VercelFormatter,
        VercelLegacyFormatter,
        formatter,
    )
    from contextc.linting import AppliedFix, ConvertedBody, ConvertedMessages, Violation, convert, fix, lint
    from contextc.manager import MessageManager
    from contextc.messages import (
        Media,
        Message,
        Part,
        ProviderBlock,
        Reasoning,
        Text,
        ToolCall,
        ToolResult,
        Usage,
        UserNotice,
        assistant,
        system,
        tool_call,
        tool_result,
        user,
    )
    from contextc.models import Model, Price, cost, model
    from contextc.prompts import AgentCard, Delegation, Prompt, PromptBuilder, PromptContext, PromptFragment
    from contextc.providers import Endpoint, Provider, endpoint, provider
    from contextc.providers.claude_code.session_store import ClaudeSessions
    from contextc.store import Branch, Conversation, Lease, Recovered, Store, Stream, open_store
    from contextc.tools import FunctionTool, ToolContext, tool
    from contextc.tools.spec import NativeTool, Tool
    from contextc.tools.todos import Todo
    from contextc.triggers import Trigger, TriggerContext, TriggerMessage, default_triggers, trigger

__all__ = [
    "AgentCard",
    "AgentExecutor",
    "AnthropicFormatter",
    "Attempt",
    "BedrockFormatter",
    "Branch",
    "ClaudeCodeFormatter",
    "ClaudeSessions",
    "CodexFormatter",
    "Compiled",
    "Conflict",
    "ContextOverflow",
    "ContextcError",
    "Conversation",
    "ConversationBusy",
    "ConversationExists",
    "ConvertedBody",
    "ConvertedMessages",
    "Cost",
    "Delegation",
    "Endpoint",
    "Formatter",
    "FragmentFailed",
    "FunctionTool",
    "GeminiFormatter",
    "UserNotice",
    "InternalError",
    "InvalidImport",
    "InvalidInput",
    "InvalidMessage",
    "InvalidReply",
    "InvalidRequest",
    "InvalidSetting",
    "KeyReused",
    "Lease",
    "LeaseLost",
    "Limits",
    "Manifest",
    "Media",
    "Message",
    "MessageCompiler",
    "MessageManager",
    "MistralFormatter",
    "Model",
    "TriggerContext",
    "ProviderBlock",
    "NativeTool",
    "NothingNew",
    "OllamaFormatter",
    "OpenAIFormatter",
    "OpenAIResponsesFormatter",
    "Part",
    "Price",
    "Prompt",
    "PromptBuilder",
    "PromptFragment",
    "Provider",
    "ProviderFailed",
    "Reasoning",
    "Recovered",
    "AppliedFix",
    "TriggerMessage",
    "SchemaTooNew",
    "SessionManager",
    "StaleCompile",
    "StaleParent",
    "Store",
    "StoreBusy",
    "StoreCorrupt",
    "StoreError",
    "StoreFull",
    "StoreReadOnly",
    "StoreUnavailable",
    "Stream",
    "PromptContext",
    "Text",
    "Todo",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolResult",
    "Trigger",
    "Turn",
    "TurnResult",
    "UnknownBranch",
    "UnknownChannel",
    "UnknownConversation",
    "UnknownMessage",
    "UnknownModel",
    "UnknownRequest",
    "Usage",
    "VercelFormatter",
    "VercelLegacyFormatter",
    "Violation",
    "assistant",
    "convert",
    "cost",
    "default_triggers",
    "endpoint",
    "fix",
    "formatter",
    "lint",
    "model",
    "open_store",
    "provider",
    "system",
    "tool",
    "tool_call",
    "tool_result",
    "trigger",
    "user",
]

_PUBLIC_NAMES = {
    "compiler": "Attempt Compiled Cost MessageCompiler",
    "errors": (
        "Conflict ContextcError ContextOverflow ConversationBusy ConversationExists FragmentFailed InternalError "
        "InvalidImport InvalidInput InvalidMessage InvalidReply InvalidRequest InvalidSetting KeyReused LeaseLost "
        "NothingNew ProviderFailed SchemaTooNew StaleCompile StaleParent StoreBusy StoreCorrupt StoreError StoreFull "
        "StoreReadOnly StoreUnavailable UnknownBranch UnknownChannel UnknownConversation UnknownMessage "
        "UnknownModel UnknownRequest"
    ),
    "executor": "AgentExecutor Turn",
    "executor.limits": "Limits TurnResult",
    "formats": (
        "AnthropicFormatter BedrockFormatter ClaudeCodeFormatter CodexFormatter Formatter GeminiFormatter "
        "MistralFormatter OllamaFormatter OpenAIFormatter OpenAIResponsesFormatter VercelFormatter "
        "VercelLegacyFormatter formatter"
    ),
    "ledger.sessions": "SessionManager",
    "manager": "MessageManager",
    "manifest": "Manifest",
    "messages": (
        "Hint Media Message Native Part Reasoning Text ToolCall ToolResult Usage assistant system tool_call "
        "tool_result user"
    ),
    "models": "Model Price cost model",
    "prompts": "AgentCard Delegation Prompt PromptBuilder PromptFragment Surroundings",
    "providers": "Endpoint Provider endpoint provider",
    "providers.claude_code.sessions": "ClaudeSessions",
    "store": "Branch Conversation Lease Recovered Store Stream open_store",
    "todos": "Todo",
    "toolbox": "FunctionTool ToolContext tool",
    "tools": "NativeTool Tool",
    "triggers": "Moment Say Trigger default_triggers trigger",
    "wire": "ConvertedBody ConvertedMessages Repaired Violation convert fix lint",
}
"""The public names of each module. Using a name imports only its module."""
_MODULE_OF = {name: module for module, names in _PUBLIC_NAMES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    if name == "__version__":
        return import_module("importlib.metadata").version(__name__)
    if (module := _MODULE_OF.get(name)) is not None:
        found: object = getattr(import_module(f"{__name__}.{module}"), name)
        globals()[name] = found
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
