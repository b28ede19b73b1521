"""Compile a stored conversation into exactly what one model should see.

Names are loaded on first use, so importing the package costs next to nothing. `__all__` is what most programs need.
Everything else is in a package: `contextc.errors`, `contextc.events`, `contextc.formats` and so on, which are loaded on
first use too (`cc.errors.StoreBusy`).
"""

from importlib import import_module

from contextc._lazy import lazy_names

TYPE_CHECKING = False  # true for type checkers; importing `typing` would be most of the cost of this module
if TYPE_CHECKING:
    from contextc import analysis as analysis
    from contextc import compiler as compiler
    from contextc import errors as errors
    from contextc import events as events
    from contextc import executor as executor
    from contextc import formats as formats
    from contextc import inspection as inspection
    from contextc import instruction_files as instruction_files
    from contextc import interchange as interchange
    from contextc import linting as linting
    from contextc import manager as manager
    from contextc import messages as messages
    from contextc import models as models
    from contextc import observation as observation
    from contextc import prompts as prompts
    from contextc import providers as providers
    from contextc import store as store
    from contextc import telemetry as telemetry
    from contextc import tools as tools
    from contextc import triggers as triggers
    from contextc import worker as worker
    from contextc.analysis import findings
    from contextc.compiler import Compiled, CompilerOptions, MessageCompiler, SessionManager
    from contextc.compiler.manifest import Manifest
    from contextc.errors import ContextcError
    from contextc.executor import Agent, AgentExecutor, AgentResult, Limits, Suspend, TurnResult
    from contextc.formats import AnthropicFormatter, GeminiFormatter, OpenAIFormatter, formatter
    from contextc.instruction_files import InstructionFiles, Skills
    from contextc.linting import Violation, convert, fix, lint
    from contextc.manager import MessageManager
    from contextc.mcp import MCPServer
    from contextc.messages import (
        Media,
        Message,
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
    from contextc.models import Model, model
    from contextc.observation import observe, tap
    from contextc.prompts import PromptBuilder, PromptContext, PromptFragment
    from contextc.providers import Provider, endpoint, provider
    from contextc.store import Store, open_store
    from contextc.tools import Tool, ToolContext, tool
    from contextc.triggers import Trigger, TriggerContext, TriggerMessage, default_triggers, trigger
    from contextc.worker import submit

    __version__: str

__all__ = [
    "Agent",
    "AgentExecutor",
    "AgentResult",
    "AnthropicFormatter",
    "Compiled",
    "CompilerOptions",
    "ContextcError",
    "GeminiFormatter",
    "InstructionFiles",
    "Limits",
    "MCPServer",
    "Manifest",
    "Media",
    "Message",
    "MessageCompiler",
    "MessageManager",
    "Model",
    "OpenAIFormatter",
    "PromptBuilder",
    "PromptContext",
    "PromptFragment",
    "Provider",
    "Reasoning",
    "SessionManager",
    "Skills",
    "Store",
    "Suspend",
    "Text",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolResult",
    "Trigger",
    "TriggerContext",
    "TriggerMessage",
    "TurnResult",
    "Usage",
    "Violation",
    "assistant",
    "convert",
    "default_triggers",
    "endpoint",
    "findings",
    "fix",
    "formatter",
    "lint",
    "model",
    "observe",
    "open_store",
    "provider",
    "submit",
    "system",
    "tap",
    "tool",
    "tool_call",
    "tool_result",
    "trigger",
    "user",
]

_NAMES = {
    "analysis": "findings",
    "compiler": "Compiled CompilerOptions MessageCompiler SessionManager",
    "compiler.manifest": "Manifest",
    "errors": "ContextcError",
    "executor": "Agent AgentExecutor AgentResult Limits Suspend TurnResult",
    "formats": "AnthropicFormatter GeminiFormatter OpenAIFormatter formatter",
    "instruction_files": "InstructionFiles Skills",
    "linting": "Violation convert fix lint",
    "manager": "MessageManager",
    "mcp": "MCPServer",
    "messages": "Media Message Reasoning Text ToolCall ToolResult Usage assistant system tool_call tool_result user",
    "models": "Model model",
    "observation": "observe tap",
    "prompts": "PromptBuilder PromptContext PromptFragment",
    "providers": "Provider endpoint provider",
    "store": "Store open_store",
    "tools": "Tool ToolContext tool",
    "triggers": "Trigger TriggerContext TriggerMessage default_triggers trigger",
    "worker": "submit",
}
"""The names in `__all__`, by the module that defines them. Using a name imports only that module."""
_PACKAGES = frozenset(
    [
        "analysis",
        "compiler",
        "errors",
        "events",
        "executor",
        "formats",
        "inspection",
        "instruction_files",
        "interchange",
        "linting",
        "manager",
        "messages",
        "models",
        "observation",
        "prompts",
        "providers",
        "store",
        "telemetry",
        "tools",
        "triggers",
        "worker",
    ]
)
_load = lazy_names(__name__, _NAMES)

if not TYPE_CHECKING:  # or type checkers would accept every name

    def __getattr__(name: str) -> object:
        if name == "__version__":
            return import_module("importlib.metadata").version(__name__)
        if name in _PACKAGES:
            return import_module(f"{__name__}.{name}")
        found = globals()[name] = _load(name)
        return found


def __dir__() -> list[str]:
    return __all__
