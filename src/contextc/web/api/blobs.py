"""Bytes of media parts. They are untrusted, so browsers must never execute them: no HTML, scripts or SVG.

Raster images are displayed; everything else is a download.
"""

from msgspec import Struct

from contextc.errors import InvalidInput
from contextc.web.desk import Desk
from contextc.web.endpoint import Content, endpoint
from contextc.web.problems import Refused

SHOWN = ("image/png", "image/jpeg", "image/gif", "image/webp")
SAVED = "application/octet-stream"
HEADERS = {
    "Cache-Control": "private, max-age=300",
    "Content-Security-Policy": "sandbox; default-src 'none'",
    "X-Content-Type-Options": "nosniff",
}


class Kind(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`type` is the `mime_type` of the media part."""

    type: str = SAVED


@endpoint("GET", "/blobs/{blob}", media_type="*/*")
def blob(desk: Desk, blob: str, query: Kind) -> Content:
    """Return the bytes of a media part by its `blob`. PNG, JPEG, GIF and WebP are displayed, others are downloads."""
    try:
        data = desk.store.blob(blob if blob.isprintable() else "")  # some stores reject some characters
    except InvalidInput as error:
        raise Refused(404, str(error), "UnknownBlob") from error
    if query.type in SHOWN:
        return Content(data, query.type, HEADERS)
    return Content(data, SAVED, {**HEADERS, "Content-Disposition": "attachment"})
