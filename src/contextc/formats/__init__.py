"""Wire formats, one folder each: our messages in a provider's shape, and back. A format is loaded when it is used."""

from importlib import import_module

from contextc.formats.named import format_names, formatter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contextc.formats.anthropic import AnthropicFormatter
    from contextc.formats.claude_code import ClaudeCodeFormatter
    from contextc.formats.codex import CodexFormatter
    from contextc.formats.gemini import GeminiFormatter
    from contextc.formats.openai_chat import OpenAIFormatter
    from contextc.formats.openai_responses import OpenAIResponsesFormatter
    from contextc.formats.vercel import VercelFormatter
    from contextc.formats.vercel_legacy import VercelLegacyFormatter

__all__ = [
    "AnthropicFormatter",
    "ClaudeCodeFormatter",
    "CodexFormatter",
    "GeminiFormatter",
    "OpenAIFormatter",
    "OpenAIResponsesFormatter",
    "VercelFormatter",
    "VercelLegacyFormatter",
    "format_names",
    "formatter",
]

_FACES = {
    "AnthropicFormatter": "anthropic",
    "ClaudeCodeFormatter": "claude_code",
    "CodexFormatter": "codex",
    "GeminiFormatter": "gemini",
    "OpenAIFormatter": "openai_chat",
    "OpenAIResponsesFormatter": "openai_responses",
    "VercelFormatter": "vercel",
    "VercelLegacyFormatter": "vercel_legacy",
}


def __getattr__(name: str) -> object:
    if name in _FACES:
        return getattr(import_module(f"{__name__}.{_FACES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
