"""Tool names and call ids as Codex accepts them: those of the Responses API, except reserved names.

Codex refuses reserved names: "dynamic tool name is reserved: mcp__x". They are encoded like names with invalid
characters.
"""

from typing import ClassVar

from contextc.formats.identifiers import IdentifierCodec, NameCodec

RESERVED_PREFIX = "mcp__"
ENCODED_PREFIX = "mcp_x5F__"


class UnreservedNames(IdentifierCodec):
    """Tool names, except those that Codex reserves for tools of MCP servers."""

    reserved: ClassVar[str] = RESERVED_PREFIX

    def writes(self, text: str) -> bool:
        return super().writes(text) and not text.startswith(self.reserved)

    def _spelled_anew(self, text: str) -> str:
        if not text.startswith(self.reserved):
            return super()._spelled_anew(text)
        rest = super()._spelled_anew(text.removeprefix(self.reserved)) if text != self.reserved else ""
        whole = ENCODED_PREFIX + rest
        return whole if self._sound.fullmatch(whole) else super()._spelled_anew(f"_{text}")


IDS = IdentifierCodec("a-zA-Z0-9_-", 64, taken=".{1,64}")
NAMES = UnreservedNames("a-zA-Z0-9_-", 128)
NAME_CODEC = NameCodec("codex", ids=IDS, names=NAMES)
