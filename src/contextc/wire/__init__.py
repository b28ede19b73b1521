"""Check, repair and convert provider requests. No store and no network is needed.

Each function takes a whole request or a bare list of its messages, from contextc or any other framework. The input is
never modified. Everything that could not be preserved is reported.
"""

from contextc.formats.checking import Violation
from contextc.wire.convert import ConvertedBody, ConvertedMessages, convert
from contextc.wire.fix import AppliedFix, fix
from contextc.wire.lint import lint

__all__ = ["ConvertedBody", "ConvertedMessages", "AppliedFix", "Violation", "convert", "fix", "lint"]
