"""Export and import of conversations: as JSON Lines of contextc (lossless), as provider requests, and from the files of
other programs.
"""

from contextc.interchange.contextc_jsonl import export_lines, import_lines
from contextc.interchange.file_import import (
    ImportedConversation,
    ImportedSession,
    ImportSummary,
    ListedSession,
    import_files,
    import_session,
    import_transcript,
    list_sessions,
)
from contextc.interchange.request_import_export import (
    ExportedArchive,
    ExportedRequest,
    ImportedRequest,
    export_archive,
    export_request,
    import_requests,
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
