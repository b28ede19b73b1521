"""A request or a run as one HTML file that needs no server and makes no network request.

The content is JSON in a block that is not executed, with `<` escaped. The file has one script and one style sheet. Its
Content-Security-Policy names their hashes and allows nothing else, so nothing in the content can run or load.
"""

from base64 import b64encode
from functools import cache
from hashlib import sha256

import msgspec

from contextc._plugins import data_files
from contextc.sharing.share_redaction import ShareRedactions
from contextc.sharing.shared_data import SharedData, collect_shared_data
from contextc.store import Store

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>contextc</title>
<style>{style}</style>
</head>
<body>
<div id="page"></div>
<noscript>This file needs JavaScript. It makes no network requests.</noscript>
<script type="application/json" id="data">{data}</script>
<script>{script}</script>
</body>
</html>
"""
POLICY = (
    "default-src 'none'; script-src '{script}'; style-src '{style}'; base-uri 'none'; form-action 'none'; "
    "require-trusted-types-for 'script'"
)


def build_shared_file(
    store: Store, conversation: str, *, request: int | None = None, channel: str = "", redact: ShareRedactions = ()
) -> bytes:
    """Return an HTML file of a conversation, or of one of its requests.

    `redact` are names of `SHARE_REDACTIONS` and regular expressions: what they match is not in the file. `channel` is
    the id of a channel, if a request of this number exists in several. Raises `UnknownConversation` and `InvalidInput`.
    """
    data = collect_shared_data(store, conversation, request=request, channel=channel, redact=redact)
    return render_page(data)


def render_page(data: SharedData) -> bytes:
    """Return the page of some content."""
    script, style = _load_files()
    policy = POLICY.format(script=_hash(script), style=_hash(style))
    return PAGE.format(policy=policy, style=style, script=script, data=_encode(data)).encode("utf-8", "replace")


def _encode(data: SharedData) -> str:
    """Return JSON that cannot end its block: it has no `<`. Line separators are escaped for older parsers."""
    text = msgspec.json.encode(data).decode("utf-8", "replace")
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


@cache
def _load_files() -> tuple[str, str]:
    script = data_files("contextc.sharing", ".js")["shared_page.js"]
    style = data_files("contextc.sharing", ".css")["shared_page.css"]
    assert "</" not in script and "</" not in style, "script and style must not contain an end tag"  # noqa: PT018
    return script, style


def _hash(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"
