"""Tools for requests as they are on the wire, ours or any other framework's: no store, no network.

Each takes a whole request or the bare list of its messages. Nothing that was given is changed; what could not be kept
is said.
"""

from contextc.formats.checking import Violation
from contextc.wire.convert import ConvertedBody, ConvertedMessages, convert
from contextc.wire.fix import Repaired, fix
from contextc.wire.lint import lint

__all__ = ["ConvertedBody", "ConvertedMessages", "Repaired", "Violation", "convert", "fix", "lint"]
