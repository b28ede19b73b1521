"""Media bytes. They come from models, tools and other people, so they are never run: no page, no script, no drawing.

Pictures made of dots may be shown; everything else is a file to be saved.
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
    """What its message says that it is: its `mime_type`."""

    type: str = SAVED


@endpoint("GET", "/blobs/{blob}", media_type="*/*")
def blob(desk: Desk, blob: str, query: Kind) -> Content:
    """The bytes of a media part, by its `blob`. PNG, JPEG, GIF and WebP are shown, everything else is saved."""
    try:
        data = desk.store.blob(blob if blob.isprintable() else "")  # not every store takes every character
    except InvalidInput as error:
        raise Refused(404, str(error), "UnknownBlob") from error
    if query.type in SHOWN:
        return Content(data, query.type, HEADERS)
    return Content(data, SAVED, {**HEADERS, "Content-Disposition": "attachment"})
