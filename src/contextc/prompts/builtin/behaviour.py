"""The `behaviour_fragment` fragment: the configured system prompt, with which every request starts.

It comes first, so that agents of one project share a prompt prefix, and with it the provider's cache.
"""

import os
from collections.abc import Mapping

from contextc.config import read_settings
from contextc.prompts.fragment import PromptFragment


def default_system_prompt(*, environment: Mapping[str, str] = os.environ, folder: str | None = None) -> str:
    """Return `CONTEXTC_SYSTEM_PROMPT`, else `system_prompt` of contextc.toml, else the default. Empty means none."""
    return read_settings(environment=environment, folder=folder).system_prompt.value


def behaviour_fragment(text: str) -> PromptFragment:
    return PromptFragment("behaviour", text, priority=0)
