"""Base behaviour: the configured system prompt, which every call begins with.

It stands before everything else, so that agents of one project share the beginning of their prompts, and with it the
provider's cache.
"""

import os
from collections.abc import Mapping

from contextc.config import read_settings
from contextc.prompts.fragment import PromptFragment


def default_system_prompt(*, environment: Mapping[str, str] = os.environ, folder: str | None = None) -> str:
    """`CONTEXTC_SYSTEM_PROMPT`, else `system_prompt` of contextc.toml, else a short text of ours. Empty means none."""
    return read_settings(environment=environment, folder=folder).system_prompt.value


def behaviour(text: str) -> PromptFragment:
    return PromptFragment("behaviour", text, priority=0)
