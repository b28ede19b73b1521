"""Collect prompt fragments and render them into a system prompt.

The order is stable: static before dynamic, then by priority, then as given. A user's fragment replaces the built-in one
with the same id. Rendering does not change the builder, so one builder serves every turn. A static text may differ from
the previous rendering; it then starts a new epoch.

Equal texts have equal hashes, in any process. `static_hash` covers the static fragments one by one, because they may be
sent as one block or as several.
"""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b
from inspect import iscoroutine
from typing import Self, cast

from msgspec import Struct

from contextc._json import encode, fix_surrogates
from contextc.errors import FragmentFailed, InvalidInput
from contextc.prompts.fragments import (
    ADDED_BY_NAME,
    BUILTIN_FRAGMENTS,
    Lifecycle,
    PromptContext,
    PromptFragment,
    behaviour_fragment,
    default_system_prompt,
)
from contextc.tools.spec import NativeTool, Tool

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
        return tuple(sorted(chosen, key=lambda fragment: (fragment.lifecycle != "static", fragment.priority)))

    def render(self, context: PromptContext = EMPTY_CONTEXT) -> Prompt:
        """Render all fragments. Fragments with blank text are omitted."""
        rendered = [each for each in (_render(fragment, context) for fragment in self.fragments) if each]
        static = tuple(each for each in rendered if each.lifecycle == "static")
        dynamic = tuple(each for each in rendered if each.lifecycle == "dynamic")
        return Prompt(static, dynamic, tuple(warning for each in static if (warning := _timestamp_warning(each))))


def _render(fragment: PromptFragment, surroundings: PromptContext) -> RenderedFragment | None:
    text = fragment.text if isinstance(fragment.text, str) else _call_renderer(fragment, surroundings)
    if not text.strip():
        return None
    try:
        content = text.encode()
    except UnicodeEncodeError:
        text = fix_surrogates(text)
        content = text.encode()
    return RenderedFragment(fragment.id, text, fragment.lifecycle, hash_text(content))


def _call_renderer(fragment: PromptFragment, surroundings: PromptContext) -> str:
    assert not isinstance(fragment.text, str)
    try:
        text = cast(object, fragment.text(surroundings))
    except Exception as error:
        raise FragmentFailed(fragment.id, f"raised {type(error).__name__}: {error}".rstrip(": .")) from error
    if text is None or isinstance(text, str):
        return text or ""
    if iscoroutine(text):
        text.close()
        raise FragmentFailed(fragment.id, "must be a synchronous function, got an async one")
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
