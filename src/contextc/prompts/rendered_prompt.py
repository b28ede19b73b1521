"""A rendered system prompt: its static and dynamic fragments, and warnings about them.

Equal texts have equal hashes, in any process. `static_hash` covers the static fragments one by one, because they may be
sent as one block or as several.
"""

from collections.abc import Sequence
from hashlib import blake2b

from msgspec import Struct

from contextc._json import encode
from contextc.prompts.fragment import Lifecycle
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
        return SEPARATOR.join([fragment.text for fragment in self.static])

    @property
    def dynamic_text(self) -> str:
        """The dynamic fragments as one block, each under its heading."""
        return SEPARATOR.join([f"## {fragment.heading}\n{fragment.text}" for fragment in self.dynamic])

    @property
    def static_hash(self) -> str:
        return hash_text("".join([fragment.hash for fragment in self.static]).encode())
