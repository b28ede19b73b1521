"""Conversations out and in: as JSON Lines of our own, where nothing is lost, as requests of providers, and from the
transcripts that other programs keep.
"""

from contextc.transfer.export import export_lines
from contextc.transfer.requests import Exported, Imported, export_request, import_requests
from contextc.transfer.sessions import (
    ImportedSession,
    ListedSession,
    import_session,
    import_transcript,
    list_sessions,
)
from contextc.transfer.take import import_lines

__all__ = [
    "Exported",
    "Imported",
    "ImportedSession",
    "ListedSession",
    "export_lines",
    "export_request",
    "import_lines",
    "import_requests",
    "import_session",
    "import_transcript",
    "list_sessions",
]
