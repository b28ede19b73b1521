"""Token overhead by model family: of requests, messages, calls and tool definitions.

The figures were fitted to recorded requests with the counts that providers reported (`benchmarks/tokens.py` prints the
errors). A new vendor is a new row. An unknown model gets the figures of its vendor's newest models, which are higher.
"""

import re
from re import Pattern
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from contextc.models.tokens.media_counting import ImageRule

ReasoningRetention: TypeAlias = Literal["always", "turn", "never"]
"""When returned reasoning counts as input: always, until the next user message, or never."""
SAME_AS_TOKENIZER = "itself"
"""As a vocabulary: use the one with the name of the tokenizer."""
VERSION = 1
"""Part of the name under which counts are stored. Raise it with every changed formula to ignore old counts."""


class OverheadProfile(Struct, frozen=True, kw_only=True):
    """The figures of one model family, in tokens unless stated otherwise."""

    name: str
    vocabulary: str | None = None
    """The vocabulary that counts text; None for the estimate."""
    factor: float
    """The factor for the estimate of a text without a vocabulary, rounded up."""
    request: int
    message: int
    system: int
    reply: int = 0
    """Additional tokens for a text that the model wrote."""
    call: int
    parallel: int = 0
    """Additional tokens for each call if a message has several."""
    result: int
    result_names: bool = False
    """True if a result repeats the name of its tool."""
    tools: int
    """Tokens that the first tool adds once."""
    tool: int = 0
    tool_with_parameters: int = 0
    tool_form: Literal["typescript", "json", "properties", "names"]
    choice: int = 0
    """Additional tokens if the model must call a tool."""
    thinking: int = 0
    """Additional tokens if reasoning is enabled."""
    schema: int = 0
    """Additional tokens for a response schema, besides the schema itself."""
    keeps_reasoning: ReasoningRetention
    sealed_frame: int = 350
    sealed_characters: float = 3.0
    """Encrypted reasoning: characters of the wrapper, and characters per token of the rest."""
    image_rule: ImageRule


OPENAI = OverheadProfile(
    name="gpt-5",
    vocabulary="o200k_base",
    factor=1.05,
    request=2,
    message=4,
    system=4,
    reply=2,
    call=6,
    parallel=4,
    result=5,
    result_names=True,
    tools=84,
    tool_form="typescript",
    schema=8,
    keeps_reasoning="turn",
    sealed_frame=1_000,
    sealed_characters=6.2,
    image_rule="tiles",
)
OPENAI_RESPONSES = replace(OPENAI, name="gpt-5-responses", tools=2)
OPENAI_OLDER = replace(
    OPENAI,
    name="gpt-4",
    request=3,
    reply=0,
    call=4,
    parallel=9,
    result=1,
    tools=3,
    tool_with_parameters=-1,
    schema=0,
)
OPENAI_OLDER_RESPONSES = replace(OPENAI_OLDER, name="gpt-4-responses", tools=1, tool_with_parameters=-5)
GPT_OSS = replace(OPENAI, name="gpt-oss", vocabulary="o200k_harmony", request=67, tools=20)
CLAUDE = OverheadProfile(
    name="claude-4",
    factor=1.1,
    request=3,
    message=4,
    system=0,
    call=36,
    result=18,
    tools=497,
    tool_form="json",
    choice=92,
    thinking=29,
    schema=130,
    keeps_reasoning="turn",
    image_rule="area",
)
CLAUDE_5 = replace(CLAUDE, name="claude-5", factor=1.5, keeps_reasoning="always")
GEMINI = OverheadProfile(
    name="gemini-3",
    vocabulary="gemma4",  # same counts as gemma3, which is Gemini's vocabulary, and ten times as fast
    factor=1.1,
    request=1,
    message=0,
    system=0,
    call=8,
    result=8,
    result_names=True,
    tools=0,
    tool=13,
    tool_with_parameters=15,
    tool_form="properties",
    keeps_reasoning="always",
    sealed_frame=90,
    sealed_characters=4.7,
    image_rule="frames",
)
GEMINI_OLDER = replace(GEMINI, name="gemini-2", tool=18, tool_with_parameters=2, keeps_reasoning="never")
VERTEX = replace(
    GEMINI,
    name="vertex",
    request=0,
    call=0,
    result=0,
    tool=0,
    tool_with_parameters=0,
    tool_form="names",
    keeps_reasoning="never",
)
OPEN = OverheadProfile(
    name="open",
    vocabulary=SAME_AS_TOKENIZER,
    factor=1.2,
    request=5,
    message=5,
    system=5,
    call=20,
    result=8,
    tools=80,
    tool=10,
    tool_form="json",
    keeps_reasoning="always",
    image_rule="tiles",
)

MISTRAL = replace(OPEN, name="mistral", request=1, message=2, system=2, call=6, result=4, tools=0, tool=12)
LLAMA = replace(OPEN, name="llama", request=30)

RESPONSES = r"openai|openai_responses|azure"
OLDER_GPT = r"(.*\W)?(chat)?gpt-[34].*"
OLDER_CLAUDE = r"|.*claude-(3.*|[a-z]+-[34]([-.@:][0-6])?([-.@:]\d{8}.*|[-.@:]\D.*)?)"
ANY = r".*"
PROFILES: tuple[tuple[Pattern[str], Pattern[str], Pattern[str], OverheadProfile], ...] = tuple(
    (re.compile(tokenizer, re.DOTALL), re.compile(provider, re.DOTALL), re.compile(model, re.DOTALL), profile)
    for tokenizer, provider, model, profile in (
        (r"o200k_harmony|gpt[-_]oss", ANY, ANY, GPT_OSS),
        (r"cl100k_base", ANY, ANY, replace(OPENAI_OLDER, vocabulary="cl100k_base")),
        (r"o200k_base", ANY, r".*gpt-oss.*", GPT_OSS),
        (r"o200k_base", RESPONSES, OLDER_GPT, OPENAI_OLDER_RESPONSES),
        (r"o200k_base", ANY, OLDER_GPT, OPENAI_OLDER),
        (r"o200k_base", RESPONSES, ANY, OPENAI_RESPONSES),
        (r"o200k_base", ANY, ANY, OPENAI),
        (r"claude", ANY, OLDER_CLAUDE, CLAUDE),
        (r"claude", ANY, ANY, CLAUDE_5),
        (r"gemini|gemma.*", r".*vertex.*", ANY, VERTEX),
        (r"gemini|gemma.*", ANY, r".*gemini-[12]\D.*", GEMINI_OLDER),
        (r"gemini|gemma.*", ANY, ANY, GEMINI),
        (r"mistral.*", ANY, ANY, MISTRAL),
        (r"llama.*", ANY, ANY, LLAMA),
        (ANY, ANY, ANY, OPEN),
    )
)
"""Patterns of tokenizer, provider and model with their profile. The first matching row applies."""


def find_profile(tokenizer: str, provider: str, model: str) -> OverheadProfile:
    """Return the profile for the names of a tokenizer, a provider and a model."""
    found = next(
        found
        for tokenizers, providers, models, found in PROFILES
        if tokenizers.fullmatch(tokenizer) and providers.fullmatch(provider) and models.fullmatch(model)
    )
    return replace(found, vocabulary=tokenizer) if found.vocabulary == SAME_AS_TOKENIZER else found
