"""Export and import of conversations: as JSON Lines of contextc (lossless), as provider requests, and from the files of
other programs.
"""

from contextc.transfer.export import export_lines
from contextc.transfer.files import ImportedConversation, ImportSummary, import_files
from contextc.transfer.requests import ExportedRequest, ImportedRequest, export_request, import_requests
from contextc.transfer.sessions import (
    ImportedSession,
    ListedSession,
    import_session,
    import_transcript,
    list_sessions,
)
from contextc.transfer.take import import_lines

__all__ = [
    "ExportedRequest",
    "ImportedRequest",
    "ImportedSession",
    "ListedSession",
    "ImportSummary",
    "ImportedConversation",
    "export_lines",
    "export_request",
    "import_files",
    "import_lines",
    "import_requests",
    "import_session",
    "import_transcript",
    "list_sessions",
]
