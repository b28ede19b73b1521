"""System prompts made of fragments, and the builder that renders them.

Static fragments come first and are hashed, to detect whether they differ from what the model has received. Dynamic ones
are rendered at every turn and sent at the end, in one block. Fragments of a turn are rendered once, when it begins, and
sent beside its input. Rendering happens before compiling: a renderer may read a file or a clock, the compiler gets
texts only.
"""

import os
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from inspect import isawaitable, iscoroutine, signature
from typing import Generic, Literal, Protocol, Self, TypeAlias, cast, get_args, runtime_checkable

from msgspec import Struct
from msgspec.structs import replace

from contextc._json import encode, encode_canonical, fix_surrogates
from contextc.config import read_settings
from contextc.errors import FragmentFailed, InvalidInput, InvalidSetting
from contextc.messages import Message, escape_markers, escaped_line
from contextc.tools.context import D
from contextc.tools.definitions import NativeTool, Tool
from contextc.tools.todos import Todo, format_todos

# ── fragments ─────────────────────────────────────────────────────────────────────────────────────────────────────────
# Prompt fragments, the context that their renderers get, and the built-in ones.
#
# A fragment is a frozen value: an id, a text or a function that returns one, its lifecycle and its priority. It is
# validated when it is created, so that the traceback points to the mistake.


Lifecycle: TypeAlias = Literal["static", "dynamic", "turn"]
LIFECYCLES: tuple[Lifecycle, ...] = get_args(Lifecycle)
"""In the order in which fragments are sent."""
DEFAULT_AGENT = "assistant"
MAX_ID_CHARACTERS = 128


class Delegation(Struct, frozen=True, kw_only=True):
    """A task given to another agent that has not returned a result."""

    to: str
    task: str = ""


class AgentCard(Struct, frozen=True, kw_only=True):
    """The name and description of an agent, for its own prompt and those of other agents."""

    name: str
    description: str = ""


class PromptContext(Struct, Generic[D], frozen=True, kw_only=True):
    """The context of a prompt, as input of a renderer. `PromptContext[Shop]` says of which type `deps` are."""

    conversation: str = ""
    agent: str = DEFAULT_AGENT
    provider: str = ""
    model: str = ""
    directory: str | None = None
    project: str | None = None
    """Text about the project for the agent."""
    tools: tuple[Tool | NativeTool, ...] = ()
    todos: tuple[Todo, ...] = ()
    responding_to: str | None = None
    delegations: tuple[Delegation, ...] = ()
    agents: tuple[AgentCard, ...] = ()
    """All agents; may include the one whose prompt is rendered."""
    deps: D = cast(D, None)
    """The dependencies of the run: what the program passed as `deps`."""
    input: tuple[Message, ...] = ()
    """The messages that opened the turn. A compiler without an executor takes the last messages of a user."""
    turn: str = ""
    """The turn, if an executor runs it: fragments of a turn are sent once for each."""

    @property
    def input_text(self) -> str:
        """The text of the user's messages that opened the turn; of all of them, if no user did."""
        said = [message for message in self.input if message.role == "user"] or self.input
        return "\n\n".join([message.text for message in said if message.text])


Renderer: TypeAlias = Callable[[PromptContext], str | Awaitable[str | None] | None]


class PromptFragment(Struct, frozen=True):
    """One part of a system prompt: `PromptFragment("identity", "You are a coder.")`.

    `static` fragments are sent when a session starts, `dynamic` ones are rendered at every turn. A fragment with the
    lifecycle `turn` belongs to the turn that it was rendered for, such as texts that were found for its question.
    Fragments are ordered by `priority`, lowest first, then as given. A fragment whose renderer returns None or blank
    text is omitted. The renderer may be async, if an agent renders it. An agent with the fragment also has its `tools`.
    """

    id: str
    text: str | Renderer = ""
    lifecycle: Lifecycle = "static"
    priority: int = 100
    tools: tuple[Callable[..., object], ...] = ()

    def __post_init__(self) -> None:
        if (
            not isinstance(self.id, str)
            or not self.id.strip()
            or len(self.id) > MAX_ID_CHARACTERS
            or not self.id.isprintable()
        ):
            raise InvalidInput(
                f"Prompt fragment: id must have 1 to {MAX_ID_CHARACTERS} printable characters", got=self.id
            )
        if not isinstance(self.text, str) and not callable(self.text):
            raise InvalidInput(
                f"Prompt fragment {self.id!r}: text must be a string or a function that returns one, "
                f"got {type(self.text).__name__}."
            )
        if not _takes_context(self.text):
            raise InvalidInput(
                f"Prompt fragment {self.id!r}: the function must accept one argument, the context",
                fix="Define it as `def name(context: cc.PromptContext) -> str`. `context.deps` has the dependencies.",
            )
        if self.lifecycle not in LIFECYCLES:
            raise InvalidInput(
                f'Prompt fragment {self.id!r}: lifecycle must be "static", "dynamic" or "turn"',
                got=self.lifecycle,
                fix="Use dynamic for text that changes from turn to turn, and turn for text about one turn's input.",
            )
        if isinstance(self.priority, bool) or not isinstance(self.priority, int):
            raise InvalidInput(f"Prompt fragment {self.id!r}: priority must be an integer", got=self.priority)


def _takes_context(text: str | Renderer) -> bool:
    try:
        if not isinstance(text, str):
            signature(text).bind(None)
    except TypeError:
        return False
    except ValueError:  # a function written in C without a signature
        pass
    return True


# ── built-in fragments ────────────────────────────────────────────────────────────────────────────────────────────────
# The built-in prompt fragments. They contain state only: an event, such as a reminder, is a message.
#
# - `identity`: the agent's name and description, if it has a card or is not the default agent.
# - `behaviour`: the configured system prompt. It comes first, so that agents of one project share a prompt prefix, and
#   with it the provider's cache. It is not in the table, because its text is configured.
# - `agents`: the other agents, in the order given by the caller.
# - `delegations`: tasks of other agents whose results are pending. A result itself is a message.
# - `project`: the caller's text about the project, and the working directory.
# - `response`: the recipient of the answer.
# - `todos`: the agent's current list. A finished list is rendered too, to replace an older version.
# - `tools`: tool definitions as text, for providers without native tools. Added only by name. The tools are sorted by
#   name, so that the order in which a program collects them does not change the prompt (qwen-code#6338).


def render_identity(surroundings: PromptContext) -> str | None:
    own = next((card for card in surroundings.agents if card.name == surroundings.agent), None)
    if own is None and surroundings.agent == DEFAULT_AGENT:
        return None
    described = f" {own.description}" if own is not None and own.description.strip() else ""
    return f"You are @{surroundings.agent}.{described}"


IDENTITY = PromptFragment("identity", render_identity, priority=10)


def render_agents(surroundings: PromptContext) -> str | None:
    others = [card for card in surroundings.agents if card.name != surroundings.agent]
    return "\n".join(["These agents are available:", *map(_agent_line, others)]) if others else None


def _agent_line(card: AgentCard) -> str:
    description = escaped_line(card.description)
    return f"- @{escaped_line(card.name).removeprefix('@')}{': ' if description else ''}{description}"


AGENTS = PromptFragment("agents", render_agents, "dynamic", priority=40)


def default_system_prompt(*, environment: Mapping[str, str] = os.environ, folder: str | None = None) -> str:
    """Return `CONTEXTC_SYSTEM_PROMPT`, else `system_prompt` of contextc.toml, else the default. Empty means none."""
    return read_settings(environment=environment, folder=folder).system_prompt.value


def behaviour_fragment(text: str) -> PromptFragment:
    return PromptFragment("behaviour", text, priority=0)


def render_delegations(surroundings: PromptContext) -> str | None:
    if not surroundings.delegations:
        return None
    return "\n".join(
        ["You wait for the results of these delegations:", *map(_delegation_line, surroundings.delegations)]
    )


def _delegation_line(delegation: Delegation) -> str:
    task = escaped_line(delegation.task)
    return f"- @{escaped_line(delegation.to).removeprefix('@')}{': ' if task else ''}{task}"


DELEGATIONS = PromptFragment("delegations", render_delegations, "dynamic", priority=30)


def render_project(surroundings: PromptContext) -> str:
    project = surroundings.project if surroundings.project and surroundings.project.strip() else ""
    directory = f"Working directory: {surroundings.directory}" if surroundings.directory else ""
    return "\n\n".join(filter(None, (project, directory)))


PROJECT = PromptFragment("project", render_project, priority=20)


def render_response(surroundings: PromptContext) -> str | None:
    name = escaped_line(surroundings.responding_to or "").removeprefix("@")
    return f"Your response will be sent to @{name}." if name else None


RESPONSE = PromptFragment("response", render_response, "dynamic", priority=20)


def render_todos(surroundings: PromptContext) -> str:
    return escape_markers(format_todos(surroundings.todos))


TODOS = PromptFragment("todos", render_todos, "dynamic", priority=10)


def render_tools(surroundings: PromptContext) -> str | None:
    tools = sorted((tool for tool in surroundings.tools if isinstance(tool, Tool)), key=lambda tool: tool.name)
    if not tools:
        return None
    return "\n\n".join(["You have these tools. Their arguments are JSON objects.", *map(_tool_text, tools)])


def _tool_text(tool: Tool) -> str:
    lines = [f"### {tool.name}", tool.description.strip()]
    lines += [f"Arguments, as JSON Schema: {encode_canonical(tool.parameters).decode()}"] if tool.parameters else []
    return "\n".join(filter(None, lines))


TOOLS = PromptFragment("tools", render_tools, priority=30)


BUILTIN_FRAGMENTS = {
    each.id: each
    for each in (
        IDENTITY,
        PROJECT,
        TOOLS,
        TODOS,
        RESPONSE,
        DELEGATIONS,
        AGENTS,
    )
}


def has_own_renderer(fragment: PromptFragment) -> bool:
    """Return True if a fragment has a function of the caller, which may be async."""
    return not isinstance(fragment.text, str) and BUILTIN_FRAGMENTS.get(fragment.id) is not fragment


ADDED_BY_NAME = {"tools"}
"""Built-in fragments that are added only by name."""


# ── the builder ───────────────────────────────────────────────────────────────────────────────────────────────────────
# Collect prompt fragments and render them into a system prompt.
#
# The order is stable: static before dynamic, then those of the turn; then by priority, then as given. A user's fragment
# replaces the built-in one with the same id. Rendering does not change the builder, so one builder serves every turn. A
# static text may differ from the previous rendering; it then starts a new epoch.
#
# Equal texts have equal hashes, in any process. `static_hash` covers the static fragments one by one, because they may
# be sent as one block or as several.


SEPARATOR = "\n\n"


def hash_text(content: bytes) -> str:
    return blake2b(content, digest_size=16, person=b"contextc prompt").hexdigest()


def hash_tools(tools: Sequence[Tool | NativeTool]) -> str:
    """Return the hash of tool definitions as sent. It depends on their order, as the cached prefix does."""
    return hash_text(encode(tools))


def heading_of(id: str) -> str:
    """Return the id of a fragment as a heading: `open_work` becomes `Open work`."""
    title = id.replace("_", " ").replace("-", " ").strip() or id
    return title[0].upper() + title[1:]


class RenderedFragment(Struct, frozen=True):
    """A fragment with its rendered text."""

    id: str
    text: str
    lifecycle: Lifecycle
    hash: str

    @property
    def heading(self) -> str:
        """The id as a heading: `open_work` becomes `Open work`."""
        return heading_of(self.id)


class PromptWarning(Struct, frozen=True):
    """A warning about a fragment that is allowed, but probably a mistake."""

    fragment: str
    code: str
    message: str


class Prompt(Struct, frozen=True):
    """The rendered fragments that are not blank, in order."""

    static: tuple[RenderedFragment, ...] = ()
    dynamic: tuple[RenderedFragment, ...] = ()
    warnings: tuple[PromptWarning, ...] = ()
    turn: tuple[RenderedFragment, ...] = ()

    @property
    def static_text(self) -> str:
        """The static fragments as one text: the system prompt."""
        return SEPARATOR.join([fragment.text for fragment in self.static])

    @property
    def dynamic_text(self) -> str:
        """The dynamic fragments as one block, each under its heading."""
        return SEPARATOR.join([f"## {fragment.heading}\n{fragment.text}" for fragment in self.dynamic])

    @property
    def static_hash(self) -> str:
        """A hash of the static fragments. If it changes, the prefix changes."""
        return hash_text("".join([fragment.hash for fragment in self.static]).encode())

    @property
    def static_hashes(self) -> dict[str, str]:
        """The hashes of the static fragments, by their ids."""
        return {fragment.id: fragment.hash for fragment in self.static}


class SentPrompt(Prompt, frozen=True):
    """A system prompt decoded from a request. Only the text of its fragments and their hashes are known."""

    sent_hash: str = ""
    sent_hashes: dict[str, str] = {}

    @property
    def static_hash(self) -> str:
        return self.sent_hash

    @property
    def static_hashes(self) -> dict[str, str]:
        return self.sent_hashes


EMPTY_CONTEXT = PromptContext()


class PromptBuilder:
    """Renders a prompt from fragments: `PromptBuilder([fragment, …]).with_builtin().render(context)`."""

    __slots__ = ("__weakref__", "_built_in", "_own")

    def __init__(self, fragments: Iterable[PromptFragment] = ()) -> None:
        self._built_in: dict[str, PromptFragment] = {}
        self._own: dict[str, PromptFragment] = {}
        if isinstance(fragments, PromptFragment | str):
            raise InvalidInput(
                f"fragments must be a list of PromptFragment, got {type(fragments).__name__}", fix="Pass [fragment]."
            )
        self.add(*fragments)

    def add(self, *fragments: PromptFragment) -> Self:
        """Add fragments, all of them or none. One with the id of a built-in fragment replaces it."""
        added: dict[str, PromptFragment] = {}
        for fragment in fragments:
            if not isinstance(fragment, PromptFragment):
                raise InvalidInput(
                    f"fragments must contain only PromptFragment, got {type(fragment).__name__}",
                    fix="Write PromptFragment(id, text).",
                )
            if fragment.id in self._own or fragment.id in added:
                raise InvalidInput(
                    f"Prompt fragment {fragment.id!r} already exists", fix="Use another id, or join the two texts."
                )
            added[fragment.id] = fragment
        self._own |= added
        return self

    def with_builtin(self, *ids: str, system_prompt: str | None = None) -> Self:
        """Add the named built-in fragments, or all but `tools`, since most providers support tools natively.

        `system_prompt` replaces the configured text of the `behaviour` fragment. An empty string means no text.
        """
        known = {"behaviour": None, **BUILTIN_FRAGMENTS}
        if unknown := [each for each in ids if each not in known]:
            raise InvalidInput(f"Built-in prompt fragment {unknown[0]!r} not found", fix=f"Use {', '.join(known)}.")
        wanted = set(ids) or known.keys() - ADDED_BY_NAME
        if system_prompt is not None or "behaviour" in wanted:
            text = default_system_prompt() if system_prompt is None else system_prompt
            self._built_in["behaviour"] = behaviour_fragment(text)
        self._built_in |= {id: fragment for id, fragment in BUILTIN_FRAGMENTS.items() if id in wanted}
        return self

    @property
    def fragments(self) -> tuple[PromptFragment, ...]:
        """The fragments in the order in which they are rendered."""
        chosen = [fragment for id, fragment in self._built_in.items() if id not in self._own]
        chosen += self._own.values()
        return tuple(sorted(chosen, key=lambda fragment: (LIFECYCLES.index(fragment.lifecycle), fragment.priority)))

    def render(self, context: PromptContext = EMPTY_CONTEXT) -> Prompt:
        """Render all fragments. Fragments with blank text are omitted. Async renderers raise `InvalidInput`."""
        return render_fragments(self.fragments, context)

    async def render_async(self, context: PromptContext = EMPTY_CONTEXT) -> Prompt:
        """Render all fragments, and await async renderers. `compile` takes what this returns as its fragments."""
        texts = [await render_text_async(fragment, context) for fragment in self.fragments]
        return _as_prompt([_rendered(*each) for each in zip(self.fragments, texts, strict=True)])


@runtime_checkable
class FragmentSource(Protocol):
    """Something that gives prompt fragments, such as the instruction files of a project."""

    @property
    def fragments(self) -> tuple[PromptFragment, ...]:
        """Return the fragments, in the order in which they are given."""
        ...


Instruction: TypeAlias = str | PromptFragment | Renderer | FragmentSource
Instructions: TypeAlias = Instruction | PromptBuilder | Prompt | Iterable[Instruction]
"""A system prompt: a text, a prompt fragment, a function of a `PromptContext`, files, or a list of them."""


def list_instructions(instructions: object) -> Prompt | PromptBuilder | tuple[PromptFragment, ...]:
    """Return instructions as fragments. A function is rendered again at every step, as dynamic fragments are."""
    if isinstance(instructions, Prompt | PromptBuilder):
        return instructions
    is_one = instructions is None or isinstance(instructions, str | PromptFragment) or callable(instructions)
    listed = (
        [instructions] if is_one or not isinstance(instructions, Iterable) else [*cast(Iterable[object], instructions)]
    )
    found: list[PromptFragment] = []
    for number, each in enumerate(listed):
        if isinstance(each, PromptFragment):
            found.append(each)
        elif isinstance(each, str):
            name = f"instructions {number + 1}" if number else "instructions"
            found += [PromptFragment(name, each)] if each.strip() else []
        elif isinstance(each, FragmentSource):
            found += each.fragments
        elif callable(each):
            name = getattr(each, "__name__", "instructions")
            name = name if name.isidentifier() else f"instructions {number + 1}"
            found.append(PromptFragment(name, cast(Renderer, each), "dynamic"))
        elif each is not None:
            raise InvalidSetting(
                "instructions must be a text, a prompt fragment, a function, or a list of them, "
                f"got {type(each).__name__}",
                fix="Pass a string, or a list such as [text, cc.PromptFragment(…), function].",
            )
    return tuple(found)


def list_tools(instructions: Instructions) -> list[Callable[..., object]]:
    """Return the tools that fragments bring."""
    listed = list_instructions(instructions)
    fragments = () if isinstance(listed, Prompt) else listed.fragments if isinstance(listed, PromptBuilder) else listed
    return [each for fragment in fragments for each in fragment.tools]


def add_fragment(instructions: Instructions, fragment: PromptFragment) -> Prompt | list[PromptFragment]:
    """Return instructions with one static fragment more, at their end."""
    listed = list_instructions(instructions)
    if isinstance(listed, Prompt):
        added = render_fragments([fragment], EMPTY_CONTEXT)
        return replace(listed, static=listed.static + added.static)
    return [*(listed.fragments if isinstance(listed, PromptBuilder) else listed), fragment]


def render_fragments(fragments: Iterable[PromptFragment], context: PromptContext) -> Prompt:
    """Render fragments in the given order."""
    return _as_prompt([_rendered(fragment, _render_text(fragment, context)) for fragment in fragments])


async def render_text_async(fragment: PromptFragment, context: PromptContext) -> str:
    """Return the text of a fragment, awaited if its renderer is async."""
    text = start_rendering(fragment, context)
    return text if isinstance(text, str) else await finish_rendering(fragment, text)


def _as_prompt(rendered: Iterable[RenderedFragment | None]) -> Prompt:
    found = [each for each in rendered if each is not None]
    static, dynamic, turn = (tuple([each for each in found if each.lifecycle == name]) for name in LIFECYCLES)
    return Prompt(static, dynamic, tuple(warning for each in static if (warning := _timestamp_warning(each))), turn)


def _rendered(fragment: PromptFragment, text: str) -> RenderedFragment | None:
    if not text.strip():
        return None
    try:
        content = text.encode()
    except UnicodeEncodeError:
        text = fix_surrogates(text)
        content = text.encode()
    return RenderedFragment(fragment.id, text, fragment.lifecycle, hash_text(content))


def _render_text(fragment: PromptFragment, context: PromptContext) -> str:
    text = start_rendering(fragment, context)
    if isinstance(text, str):
        return text
    if iscoroutine(text):
        text.close()
    raise InvalidInput(
        f"Prompt fragment {fragment.id!r}: its renderer is async and cannot be awaited here",
        fix="Pass what `await cc.PromptBuilder(fragments).render_async(context)` returns. Agents await it themselves.",
    )


def start_rendering(fragment: PromptFragment, context: PromptContext) -> str | Awaitable[object]:
    """Call a renderer. Returns the text, or what must be awaited for it."""
    if isinstance(fragment.text, str):
        return fragment.text
    try:
        text = cast(object, fragment.text(context))
    except Exception as error:
        raise _renderer_failed(fragment, error) from error
    return text if isawaitable(text) else _checked_text(fragment, text)


async def finish_rendering(fragment: PromptFragment, text: Awaitable[object]) -> str:
    """Await the text of a fragment."""
    try:
        found = await text
    except Exception as error:
        raise _renderer_failed(fragment, error) from error
    return _checked_text(fragment, found)


def _renderer_failed(fragment: PromptFragment, error: Exception) -> FragmentFailed:
    return FragmentFailed(fragment.id, f"raised {type(error).__name__}: {error}".rstrip(": ."))


def _checked_text(fragment: PromptFragment, text: object) -> str:
    if text is None or isinstance(text, str):
        return text or ""
    raise FragmentFailed(fragment.id, f"must return a string or None, got {type(text).__name__}")


def _timestamp_warning(fragment: RenderedFragment) -> PromptWarning | None:
    moment = find_timestamp(fragment.text)
    if moment is None:
        return None
    return PromptWarning(
        fragment.id,
        "moment-in-static",
        f"Static fragment {fragment.id!r} contains a timestamp ({moment!r}). If it is the time of rendering, each call "
        "has a different prefix and the prompt cache never hits. Make it a dynamic fragment.",
    )


# ── timestamps in static text ─────────────────────────────────────────────────────────────────────────────────────────
# Find a timestamp in text that should be constant: a date with time, a time of day, today's date.
#
# A prompt that starts with the time differs at every call, and no provider's cache ever hits (OpenHands
# software-agent-sdk#3690). A date alone may be a version or a deadline, and a time an opening hour. They count only
# shortly after words like "now" or "today", in the same sentence.


_MONTH = r"[A-Z][a-z]{2,8}"
_CANDIDATE = re.compile(
    r"(?<![\w:.-])(?:"
    r"(?P<sure>\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}|(?:[01]?\d|2[0-3]):[0-5]\d:[0-5]\d(?!:?\w))"
    r"|(?:[01]?\d|2[0-3]):[0-5]\d(?![:\w])"
    r"|\d{4}-\d{2}-\d{2}(?!\w)|\d{1,2}[./]\d{1,2}[./]\d{4}(?!\w)"
    rf"|\d{{1,2}}\.? {_MONTH},? \d{{4}}(?!\w)|{_MONTH} \d{{1,2}}, \d{{4}}(?!\w)"
    r"|1[5-9]\d{8}(?:\d{3})?(?!\w))"
)
_CUE = re.compile(r"\b(?:now|today|current(?:ly)?|as of|time|timestamp|date)\b[^\n.!?\d]{0,30}$", re.IGNORECASE)
_REACH = 45
_TWO_DIGITS = re.compile(r"\d\d")  # every timestamp has them, most lines do not


@lru_cache(maxsize=32)
def find_timestamp(text: str) -> str | None:
    """Return the first timestamp in a text, or None."""
    return next(filter(None, (_find_in_line(line) for line in text.splitlines() if _TWO_DIGITS.search(line))), None)


def _find_in_line(line: str) -> str | None:
    for found in _CANDIDATE.finditer(line):
        if found["sure"]:
            return found[0]
        if cue := _CUE.search(line[max(0, found.start() - _REACH) : found.start()]):
            return cue[0] + found[0]
    return None
