"""Bytes of media parts. They are untrusted, so browsers must never execute them: no HTML, scripts or SVG.

Raster images are displayed; everything else is a download.
"""

from msgspec import Struct

from contextc.errors import InvalidInput
from contextc.web.app_state import AppState
from contextc.web.endpoint_registry import RawResponse, endpoint
from contextc.web.http_errors import HTTPError

TAG = "blobs"
DISPLAYED_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
DOWNLOAD_TYPE = "application/octet-stream"
HEADERS = {
    "Cache-Control": "private, max-age=300",
    "Content-Security-Policy": "sandbox; default-src 'none'",
    "X-Content-Type-Options": "nosniff",
}


class BlobQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`type` is the `mime_type` of the media part."""

    type: str = DOWNLOAD_TYPE


@endpoint("GET", "/blobs/{blob}", media_type="*/*")
def blob(app: AppState, blob: str, query: BlobQuery) -> RawResponse:
    """Return the bytes of a media part by its `blob`. PNG, JPEG, GIF and WebP are displayed, others are downloads."""
    try:
        data = app.store.blob(blob if blob.isprintable() else "")  # some stores reject some characters
    except InvalidInput as error:
        raise HTTPError(404, str(error), "UnknownBlob") from error
    if query.type in DISPLAYED_TYPES:
        return RawResponse(data, query.type, HEADERS)
    return RawResponse(data, DOWNLOAD_TYPE, {**HEADERS, "Content-Disposition": "attachment"})
