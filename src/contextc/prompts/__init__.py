"""System prompts in pieces: fragments that stand still and fragments that change, and the builder that renders them.

Static fragments come first and are hashed, so that whoever sends them can tell whether they are still what the model
was shown. Dynamic ones are rendered at every turn and go to the tail, in one block. Rendering is done before compiling
and outside it: a renderer may read a file or a clock, the compiler is handed texts.
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
