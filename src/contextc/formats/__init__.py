"""Wire formats, one folder each: our messages in a provider's shape, and back."""

from contextc.formats.anthropic import AnthropicFormatter
from contextc.formats.gemini import GeminiFormatter
from contextc.formats.named import format_names, formatter
from contextc.formats.openai_chat import OpenAIFormatter
from contextc.formats.openai_responses import OpenAIResponsesFormatter
from contextc.formats.vercel import VercelFormatter
from contextc.formats.vercel_legacy import VercelLegacyFormatter

__all__ = [
    "AnthropicFormatter",
    "GeminiFormatter",
    "OpenAIFormatter",
    "OpenAIResponsesFormatter",
    "VercelFormatter",
    "VercelLegacyFormatter",
    "format_names",
    "formatter",
]
