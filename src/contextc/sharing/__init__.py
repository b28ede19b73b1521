"""Sharing of recorded requests: one HTML file that needs no server."""

from contextc.sharing.shared_file import SHARE_REDACTIONS as SHARE_REDACTIONS
from contextc.sharing.shared_file import build_shared_file as build_shared_file
