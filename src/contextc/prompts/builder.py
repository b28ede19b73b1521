"""Collects fragments and renders them.

The order is stable: static before dynamic, then by priority, then as given. What is built in steps back before a
fragment of the user's own that has the same id. Rendering has no effect on the builder, so the same builder serves
every turn of an execution; a static text that differs from the last time is allowed, and begins a new epoch where it
is sent.
"""

from collections.abc import Iterable
from inspect import iscoroutine
from typing import Self, cast

from contextc._json import well_formed
from contextc.errors import FragmentFailed, InvalidInput
from contextc.prompts.builtin import BUILT_IN, ON_REQUEST
from contextc.prompts.builtin.behaviour import behaviour, default_system_prompt
from contextc.prompts.fragment import PromptFragment, Surroundings
from contextc.prompts.moments import find_moment
from contextc.prompts.prompt import Prompt, PromptWarning, Rendered, hash_of

NOWHERE = Surroundings()


class PromptBuilder:
    """`PromptBuilder([fragment, …]).with_builtin().render(surroundings)`."""

    def __init__(self, fragments: Iterable[PromptFragment] = ()) -> None:
        self._built_in: dict[str, PromptFragment] = {}
        self._own: dict[str, PromptFragment] = {}
        if isinstance(fragments, PromptFragment | str):
            raise InvalidInput("One fragment is not a list of fragments. Write [fragment].")
        self.add(*fragments)

    def add(self, *fragments: PromptFragment) -> Self:
        """Take in fragments, all of them or none. One with the id of a built-in fragment takes its place."""
        added: dict[str, PromptFragment] = {}
        for fragment in fragments:
            if not isinstance(fragment, PromptFragment):
                raise InvalidInput(
                    f"a {type(fragment).__name__} is not a prompt fragment. Write PromptFragment(id, text)."
                )
            if fragment.id in self._own or fragment.id in added:
                raise InvalidInput(
                    f"There are two prompt fragments {fragment.id!r}. Give one of them another id, or join their texts."
                )
            added[fragment.id] = fragment
        self._own |= added
        return self

    def with_builtin(self, *ids: str, system_prompt: str | None = None) -> Self:
        """Take in what is built in: those named, or all but the list of tools, which most providers are given natively.

        `system_prompt` is the text of `behaviour`, in place of the configured one; an empty one means none.
        """
        known = {"behaviour": None, **BUILT_IN}
        if unknown := [each for each in ids if each not in known]:
            raise InvalidInput(f"No prompt fragment {unknown[0]!r} is built in. There are: {', '.join(known)}.")
        wanted = set(ids) or known.keys() - ON_REQUEST
        if system_prompt is not None or "behaviour" in wanted:
            text = default_system_prompt() if system_prompt is None else system_prompt
            self._built_in["behaviour"] = behaviour(text)
        self._built_in |= {id: fragment for id, fragment in BUILT_IN.items() if id in wanted}
        return self

    @property
    def fragments(self) -> tuple[PromptFragment, ...]:
        """The fragments in the order in which they are shown."""
        chosen = [fragment for id, fragment in self._built_in.items() if id not in self._own]
        chosen += self._own.values()
        return tuple(sorted(chosen, key=lambda fragment: (fragment.lifecycle != "static", fragment.priority)))

    def render(self, surroundings: Surroundings = NOWHERE) -> Prompt:
        """Every fragment's text as it is now, without those that have none."""
        rendered = [each for each in (_render(fragment, surroundings) for fragment in self.fragments) if each]
        static = tuple(each for each in rendered if each.lifecycle == "static")
        dynamic = tuple(each for each in rendered if each.lifecycle == "dynamic")
        return Prompt(static, dynamic, tuple(warning for each in static if (warning := _warning(each))))


def _render(fragment: PromptFragment, surroundings: Surroundings) -> Rendered | None:
    text = fragment.text if isinstance(fragment.text, str) else _called(fragment, surroundings)
    if not text.strip():
        return None
    try:
        content = text.encode()
    except UnicodeEncodeError:
        text = well_formed(text)
        content = text.encode()
    return Rendered(fragment.id, text, fragment.lifecycle, hash_of(content))


def _called(fragment: PromptFragment, surroundings: Surroundings) -> str:
    assert not isinstance(fragment.text, str)
    try:
        text = cast(object, fragment.text(surroundings))
    except Exception as error:
        raise FragmentFailed(fragment.id, f"raised {type(error).__name__}: {error}".rstrip(": .")) from error
    if text is None or isinstance(text, str):
        return text or ""
    if iscoroutine(text):
        text.close()
        raise FragmentFailed(fragment.id, "is an async function, and a renderer is a plain one")
    raise FragmentFailed(fragment.id, f"returned a {type(text).__name__} where a text or None belongs")


def _warning(fragment: Rendered) -> PromptWarning | None:
    moment = find_moment(fragment.text)
    if moment is None:
        return None
    return PromptWarning(
        fragment.id,
        "moment-in-static",
        f"Static fragment {fragment.id!r} names a moment ({moment!r}). If that is the time of rendering, every call "
        "has another prefix and no prompt cache will hit: make it a dynamic fragment.",
    )
