"""Conversations as JSON Lines: everything out, everything back in."""

from contextc.transfer.export import export_lines
from contextc.transfer.take import import_lines

__all__ = ["export_lines", "import_lines"]
