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

    def is_unchanged(self, text: str) -> bool:
        return super().is_unchanged(text) and not text.startswith(self.reserved)

    def _reencode(self, text: str) -> str:
        if not text.startswith(self.reserved):
            return super()._reencode(text)
        rest = super()._reencode(text.removeprefix(self.reserved)) if text != self.reserved else ""
        whole = ENCODED_PREFIX + rest
        return whole if self._sound.fullmatch(whole) else super()._reencode(f"_{text}")


IDS = IdentifierCodec("a-zA-Z0-9_-", 64, accepted=".{1,64}")
NAMES = UnreservedNames("a-zA-Z0-9_-", 128)
NAME_CODEC = NameCodec("codex", ids=IDS, names=NAMES)
