"""Names that docs, docstrings, comments and error texts quote exist: a reader can search for each of them.

A name is looked up in the code: in every word of a Python file that is not prose, in data files, scripts and names of
files. `object.attribute` and `Class(parameter=…)` are checked against the classes themselves.
"""

import ast
import inspect
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple, get_origin

import contextc as cc
from contextc.compiler.step import Compiled
from contextc.executor.turn import Turn
from contextc.web.app_state import ServerOptions

ROOT = Path(__file__).parents[1]
WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
DOCSTRING = re.compile(r'^[ \t]*r?"""(.*?)"""', re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"(?:^|\s)#\s.*$", re.MULTILINE)
CODE_BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
QUOTED = re.compile(r"`+([^`\n]+)`+")
QUOTED_IN_CODE = re.compile(r"`[A-Za-z_][^`\n\"']*`")
NAME = re.compile(r"[A-Za-z_][\w.]*(?:\(.*\))?|[a-z_]+=.*")
CALL = re.compile(r"(?:cc\.)?((?:\w+\.)*\w+)\((\w+)=.*\)")
ATTRIBUTE = re.compile(r"(\w+)\.(\w+)(?:\(.*\))?")
OLD_NAMES = ("CHANGELOG.md", "docs/upgrading.md")
"""Pages that name what is no more."""

CLASSES: dict[str, type] = {
    "agent": cc.Agent,
    "compiled": Compiled,
    "compiler": cc.MessageCompiler,
    "executor": cc.AgentExecutor,
    "manager": cc.MessageManager,
    "message": cc.Message,
    "store": cc.Store,
    "turn": Turn,
    "ServerOptions": ServerOptions,
}
OTHER_THINGS = {
    "agent.db",
    "agent.messages",
    "agent.structured_output",
    "executor.event_hub",
    "store.db",
    "turn.failed",
}
"""Attributes of the agents of frameworks, a module, files, and an event of Codex."""
FOREIGN = {*WORD.findall("""
    OAuthClientProvider TokenStorage cacheScope ttlMs
    configurable_fields create_agent with_fallbacks with_retry with_structured_output
    AdvancedSQLiteSession AnthropicPromptCachingMiddleware CLAUDE_CODE_RESUME_PROMPT CacheConfig City
    Agnet conversaton hihg nmae run_snyc Toolbox
    ContextCacheConfig ContextEditingMiddleware ContextFilterPlugin DeltaChannel HttpAgent HttpOnly
    MultiModalContent OpenAIResponsesCompactionSession ProcessHistory RetryInfo RunAgentInput SQLAlchemySession
    SQLiteSession SSE StreamingMode SummarizationMiddleware SummarizingConversationManager TE TieredCompaction
    ToolOutputTrimmer UIMessage addToolApprovalResponse ainvoke all_messages assert astream async_client
    cache_config call_1 call_2 call_7 call_model_input_filter comparison_response_id context_lens context_manager
    contextc_token_8377 contextlib convertToModelMessages convert_to_openai_messages files_x2E_read generateText
    files__read_file files__read_text_file hidepid invoke_async langchain_core last_question max_budget_usd max_turns
    modelMessageSchema
    model_input_context onData open_work per_turn permission_mode plugin previous_interaction_id previous_message_id
    proactive_compression ps quick run_stream sendAutomaticallyWhen setting_sources shared_buffers shelf sslmode
    static_instruction streamText stream_async synchronous_standby_names thinking_blocks trim_messages useChat utils
    validateUIMessages DatabaseSessionService RunState completion_cost create_sdk_mcp_server get_max_tokens
    needs_approval num_retries run_streamed update_state ClaudeSDKClient InMemorySaver LlmAgent allowed_tools
    can_use_tool fork_session before_model_callback delete_all
""")}  # fmt: skip
"""Names of vendors, frameworks and databases, of things in examples, and misspelled ones that checkers refuse."""


class Prose(NamedTuple):
    """A text with quoted names, and where it is. `known` are names that the page itself defines in examples."""

    place: str
    text: str
    known: frozenset[str] = frozenset()


@cache
def _source() -> tuple[set[str], list[Prose]]:
    """Return all words of the code, and its prose."""
    words: set[str] = set()
    prose: list[Prose] = []
    for path in sorted((ROOT / "src" / "contextc").rglob("*.py")):
        text, name = path.read_text(), str(path.relative_to(ROOT))
        prose += [Prose(name, found[1]) for found in DOCSTRING.finditer(text)]
        code = DOCSTRING.sub("", text)
        prose += [Prose(name, found[0]) for found in COMMENT.finditer(code)]
        code = COMMENT.sub("", code)
        prose += [Prose(name, found[0]) for found in QUOTED_IN_CODE.finditer(code)]
        words.update(WORD.findall(QUOTED_IN_CODE.sub("", code)), path.parts, [path.stem])
    for pattern in (
        "src/**/*.toml",
        "src/contextc/web/static/app/**/*.js",
        "src/**/*.sql",
        "Makefile",
        "pyproject.toml",
    ):
        for path in ROOT.glob(pattern):
            words.update(WORD.findall(path.read_text()))
    for folder in ("docs", "examples", "src", "tests", "benchmarks"):
        words.update(name for path in (ROOT / folder).rglob("*") for name in (path.name, path.stem))
    words.update(f"CONTEXTC_{word.upper()}" for word in list(words) if word.islower())
    return words, prose


@cache
def _pages() -> list[Prose]:
    pages: list[Prose] = []
    for path in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]):
        name, text = str(path.relative_to(ROOT)), path.read_text()
        if name not in OLD_NAMES:
            known = frozenset(word for block in CODE_BLOCK.findall(text) for word in WORD.findall(block))
            pages.append(Prose(name, CODE_BLOCK.sub("", text), known))
    return pages


def _quoted() -> Iterator[tuple[Prose, str]]:
    for prose in (*_source()[1], *_pages()):
        for found in QUOTED.finditer(prose.text):
            if NAME.fullmatch(found[1]):
                yield prose, found[1]


def test_every_quoted_name_exists() -> None:
    """A name that outlived a rename sends a reader on a search without end."""
    wrong = {
        f"{prose.place}: `{quoted}`: {word}"
        for prose, quoted in _quoted()
        for word in WORD.findall(re.sub(r"\"[^\"]*\"|'[^']*'", "", quoted))
        if word not in _source()[0] and word not in FOREIGN and word not in prose.known
    }
    assert sorted(wrong) == []


def test_every_quoted_attribute_and_parameter_exists() -> None:
    """`executor.start`, `cc.Agent(tools=…)`: what is written like code works like code."""
    wrong: set[str] = set()
    for prose, quoted in _quoted():
        attribute, call = ATTRIBUTE.fullmatch(quoted), CALL.fullmatch(quoted)
        if attribute is not None and attribute[1] in CLASSES and quoted not in OTHER_THINGS:
            if attribute[2] not in _members(CLASSES[attribute[1]]):
                wrong.add(f"{prose.place}: `{quoted}`")
        elif call is not None and (target := _find(call[1])) is not None:
            if call[2] not in inspect.signature(target).parameters:
                wrong.add(f"{prose.place}: `{quoted}`")
        elif call is not None and call[1][0].isupper() and not {*call[1].split(".")} <= FOREIGN | DEFINED:
            wrong.add(f"{prose.place}: `{quoted}`")
    assert sorted(wrong) == []


DEFINED = {
    word
    for path in (ROOT / "src" / "contextc").rglob("*.py")
    for word in re.findall(r"^\s*(?:class|def|async def) (\w+)|^(\w+)(?:: \w+)? =", path.read_text(), re.MULTILINE)
    for word in word
    if word
}


def _find(name: str) -> type | None:
    """Return a public class by its name; None if there is none."""
    if name in CLASSES:
        return CLASSES[name]
    target: object = cc
    for part in name.split("."):
        if not hasattr(target, "__all__") or part not in [*vars(target)["__all__"], *vars(target)]:
            target = getattr(target, part, None) if part in cc.__all__ else None
        else:
            target = getattr(target, part, None)
    return target if isinstance(target, type) else None


@cache
def _members(owner: type) -> set[str]:
    found = set(dir(owner))
    for each in inspect.getmro(get_origin(owner) or owner)[:-1]:
        found.update(getattr(each, "__annotations__", {}))
        if each.__module__.startswith("contextc."):
            tree = ast.parse(inspect.cleandoc("\n" + inspect.getsource(each)))
            found.update(node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute))
    return found
