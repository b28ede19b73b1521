"""Wire formats, one folder each: our messages in a provider's shape, and back."""

from contextc.formats.anthropic import AnthropicFormatter
from contextc.formats.openai_chat import OpenAIFormatter

__all__ = ["AnthropicFormatter", "OpenAIFormatter"]
