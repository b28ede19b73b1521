"""Export and import of conversations: as JSON Lines of contextc (lossless), as provider requests, and from the files of
other programs.
"""

from contextc.transfer.export import export_lines
from contextc.transfer.files import Summary, TakenIn, import_files
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
    "Summary",
    "TakenIn",
    "export_lines",
    "export_request",
    "import_files",
    "import_lines",
    "import_requests",
    "import_session",
    "import_transcript",
    "list_sessions",
]
