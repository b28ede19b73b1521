"""Conversations out and in: as JSON Lines of our own, where nothing is lost, and as requests of providers."""

from contextc.transfer.export import export_lines
from contextc.transfer.requests import Exported, Imported, export_request, import_requests
from contextc.transfer.take import import_lines

__all__ = ["Exported", "Imported", "export_lines", "export_request", "import_lines", "import_requests"]
