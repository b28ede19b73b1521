"""Redaction of a shared file: texts, tool results, names of files, and patterns. The stored content does not change."""

import re
import secrets
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from contextc.errors import InvalidInput
from contextc.observation.redaction_patterns import BUILTIN_PATTERNS, Redactor, compile_patterns

TEXTS, RESULTS, FILES = "texts", "results", "files"
SHARE_REDACTIONS = (TEXTS, RESULTS, FILES, *BUILTIN_PATTERNS)
"""Names of what can be removed. Regular expressions can be given, too."""
ShareRedactions: TypeAlias = Sequence[str | re.Pattern[str]]
"""Names of `SHARE_REDACTIONS`, and regular expressions."""
PATHS = (
    r"(?:[A-Za-z]:[\\/]|\\\\|~/|\.{1,2}/|(?<![\w.:/<])/(?=[\w.~-]))[^\s\"'`<>|*?(),;\[\]{}]+",  # absolute, home, ./
    r"(?<![\w/.@+-])[\w.@+-]+(?:/[\w.@+-]+)*/[\w@+-]*\.[A-Za-z][A-Za-z0-9]{0,7}\b",  # relative, with an extension
    r"(?<![\w/.@+-])[\w.@+-]+(?:/[\w.@+-]+){2,}",  # relative, of three parts or more
    r"(?<![\w/.@-])[\w-]+\.(?:py|pyi|ipynb|js|jsx|ts|tsx|mjs|json|jsonl|ya?ml|toml|md|rst|txt|csv|tsv|xlsx?|docx?|pptx?|pdf"
    r"|html?|css|scss|sql|sh|bash|ps1|bat|go|rs|c|h|cc|cpp|hpp|java|kt|swift|rb|php|pl|lua|r|ini|cfg|conf|env|lock|log|xml"
    r"|png|jpe?g|gif|svg|webp|zip|tar|gz|db|sqlite|pem|key|crt)\b",
)  # fmt: skip
MIN_NAME = 3


class ShareRedaction:
    """Removes what must not be in a shared file. Files of one name have the same placeholder, with and without a
    path.

    `kinds` are names of `SHARE_REDACTIONS`. `files` are names of files that calls mention: they are found even if they
    do not look like a path.
    """

    def __init__(self, redact: ShareRedactions = (), files: Iterable[str] = ()) -> None:
        given = list(redact)
        self.kinds = frozenset([each for each in given if isinstance(each, str) and each in (TEXTS, RESULTS, FILES)])
        patterns = [each for each in given if not isinstance(each, str) or each not in self.kinds]
        for each in patterns:
            _check_name(each)
        self._redactor = Redactor(compile_patterns(patterns), secrets.token_bytes(32))
        self._names: dict[str, str] = {}
        self._paths = _compile_files(files) if FILES in self.kinds else None
        self.labels = [each for each in SHARE_REDACTIONS if each in given]
        if len(given) > len(self.labels):
            self.labels.append("patterns")

    @property
    def removes_quotes(self) -> bool:
        """True if nothing that may quote a message or a result is kept, such as the evidence of a finding."""
        return TEXTS in self.kinds or RESULTS in self.kinds

    def is_removed(self, *, is_result: bool) -> bool:
        """Return True if a whole text is removed: that of a result, or any other."""
        return (RESULTS if is_result else TEXTS) in self.kinds

    def clean(self, text: str) -> str:
        """Return a text without names of files and without the matches of patterns."""
        text = self._redactor.redact_text(text)
        return self._paths.sub(self._name_file, text) if self._paths is not None else text

    def _name_file(self, match: re.Match[str]) -> str:
        name = re.split(r"[\\/]", match[0].rstrip("\\/"))[-1]
        return self._names.setdefault(name, f"[file {len(self._names) + 1}]")


def _check_name(given: str | re.Pattern[str]) -> None:
    if isinstance(given, str) and given not in BUILTIN_PATTERNS and re.fullmatch(r"[A-Za-z_]*", given):
        raise InvalidInput(
            "redact: unknown name",
            got=given,
            fix=f"Use {', '.join(SHARE_REDACTIONS)}, or a regular expression such as ({given or 'word'}).",
        )


def _compile_files(files: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern of the given names, their last parts, and everything that looks like a path."""
    names: set[str] = set()
    for each in files:
        names |= {part for part in (each, *re.split(r"[\\/]", each)[-1:]) if len(part) >= MIN_NAME}
    known: Sequence[str] = sorted(names, key=len, reverse=True)
    return re.compile("|".join([*[rf"(?<!\w){re.escape(each)}(?!\w)" for each in known], *PATHS]))
