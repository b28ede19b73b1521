"""System prompts made of static and dynamic fragments, and the builder that renders them.

Static fragments come first and are hashed, to detect whether they differ from what the model has received. Dynamic ones
are rendered at every turn and sent at the end, in one block. Rendering happens before compiling: a renderer may read a
file or a clock, the compiler gets texts only.
"""

from contextc.prompts.builder import PromptBuilder
from contextc.prompts.builtin.behaviour import default_system_prompt
from contextc.prompts.escape import MARKS, SYSTEM_CONTEXT, Tag, escape, tagged
from contextc.prompts.fragment import AgentCard, Delegation, Lifecycle, PromptFragment, Renderer, Surroundings
from contextc.prompts.prompt import Prompt, PromptWarning, Rendered, hash_tools, title_of

__all__ = [
    "MARKS",
    "SYSTEM_CONTEXT",
    "AgentCard",
    "Delegation",
    "Lifecycle",
    "Prompt",
    "PromptBuilder",
    "PromptFragment",
    "PromptWarning",
    "Rendered",
    "Renderer",
    "Surroundings",
    "Tag",
    "default_system_prompt",
    "escape",
    "hash_tools",
    "tagged",
    "title_of",
]
