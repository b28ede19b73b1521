"""Check, repair and convert provider requests. No store and no network is needed.

Each function takes a whole request or a bare list of its messages, from contextc or any other framework. The input is
never modified. Everything that could not be preserved is reported.
"""

from contextc.formats.lint_engine import Violation
from contextc.linting.converter import ConvertedBody, ConvertedMessages, convert
from contextc.linting.lint_and_fix import AppliedFix, fix, lint

__all__ = ["AppliedFix", "ConvertedBody", "ConvertedMessages", "Violation", "convert", "fix", "lint"]
