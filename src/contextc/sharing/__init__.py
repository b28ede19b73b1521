"""Sharing of recorded requests: one HTML file that needs no server."""

from contextc.sharing.shared_html import SHARE_REDACTIONS as SHARE_REDACTIONS
from contextc.sharing.shared_html import build_shared_file as build_shared_file
