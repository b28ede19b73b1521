"""System prompts made of static and dynamic fragments, and the builder that renders them.

Static fragments come first and are hashed, to detect whether they differ from what the model has received. Dynamic ones
are rendered at every turn and sent at the end, in one block. Rendering happens before compiling: a renderer may read a
file or a clock, the compiler gets texts only.
"""

from contextc.messages.escaping import MARKERS, SYSTEM_CONTEXT, Tag, escape_markers, with_tags
from contextc.prompts.builder import Prompt, PromptBuilder, PromptWarning, RenderedFragment, hash_tools, heading_of
from contextc.prompts.fragments import (
    AgentCard,
    Delegation,
    Lifecycle,
    PromptContext,
    PromptFragment,
    Renderer,
    default_system_prompt,
)

__all__ = [
    "MARKERS",
    "SYSTEM_CONTEXT",
    "AgentCard",
    "Delegation",
    "Lifecycle",
    "Prompt",
    "PromptBuilder",
    "PromptContext",
    "PromptFragment",
    "PromptWarning",
    "RenderedFragment",
    "Renderer",
    "Tag",
    "default_system_prompt",
    "escape_markers",
    "hash_tools",
    "heading_of",
    "with_tags",
]
