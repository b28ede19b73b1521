"""Export and import of conversations: as JSON Lines of contextc (lossless), as provider requests, and from the files of
other programs.
"""

from contextc.interchange.contextc_jsonl_export import export_lines
from contextc.interchange.contextc_jsonl_import import import_lines
from contextc.interchange.file_import import ImportedConversation, ImportSummary, import_files
from contextc.interchange.har_export import ExportedArchive, export_archive
from contextc.interchange.request_import_export import ExportedRequest, ImportedRequest, export_request, import_requests
from contextc.interchange.session_import import (
    ImportedSession,
    ListedSession,
    import_session,
    import_transcript,
    list_sessions,
)

__all__ = [
    "ExportedArchive",
    "ExportedRequest",
    "ImportSummary",
    "ImportedConversation",
    "ImportedRequest",
    "ImportedSession",
    "ListedSession",
    "export_archive",
    "export_lines",
    "export_request",
    "import_files",
    "import_lines",
    "import_requests",
    "import_session",
    "import_transcript",
    "list_sessions",
]
