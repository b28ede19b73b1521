"""Wire formats, one folder each. A format converts between contextc messages and a provider's JSON.

A format is imported when it is first used. The class of a format has the name of its folder: `BedrockFormatter` is in
`bedrock`. The imports below are for type checkers; a folder that is not listed works as well.
"""

from contextc.formats.base import ConversionNote, EncodedSegment, Formatter, Request
from contextc.formats.registry import find_formatter_class, format_names, formatter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contextc.formats.anthropic import AnthropicFormatter
    from contextc.formats.bedrock import BedrockFormatter
    from contextc.formats.claude_code import ClaudeCodeFormatter
    from contextc.formats.codex import CodexFormatter
    from contextc.formats.gemini import GeminiFormatter
    from contextc.formats.mistral import MistralFormatter
    from contextc.formats.ollama import OllamaFormatter
    from contextc.formats.openai_chat import OpenAIFormatter
    from contextc.formats.openai_responses import OpenAIResponsesFormatter
    from contextc.formats.vercel import VercelFormatter
    from contextc.formats.vercel_legacy import VercelLegacyFormatter

__all__ = [
    "AnthropicFormatter",
    "BedrockFormatter",
    "ClaudeCodeFormatter",
    "CodexFormatter",
    "ConversionNote",
    "EncodedSegment",
    "Formatter",
    "GeminiFormatter",
    "MistralFormatter",
    "OllamaFormatter",
    "OpenAIFormatter",
    "OpenAIResponsesFormatter",
    "Request",
    "VercelFormatter",
    "VercelLegacyFormatter",
    "format_names",
    "formatter",
]

if not TYPE_CHECKING:  # or type checkers would accept every name

    def __getattr__(name: str) -> object:
        if (found := find_formatter_class(name)) is not None:
            return found
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
