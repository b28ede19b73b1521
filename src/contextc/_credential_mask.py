"""Keys, tokens and logins in texts: what they look like, and a mask for error texts and log records.

`CREDENTIAL_PATTERNS` is the only list of them. Observed requests are redacted with it, and `mask_secrets` uses it for
what is logged, shown or stored as an error. There, short keys are masked too: providers quote a part of them, and a
word that is masked by mistake does no harm. Every expression takes time in proportion to the text.
"""

import logging
import re
import traceback
from base64 import b64decode
from collections.abc import Iterable, Iterator
from functools import lru_cache
from string import ascii_letters, digits
from typing import NamedTuple

MASK = "[key]"
MIN_SECRET_LENGTH = 6
START = r"(?:(?<![A-Za-z0-9_\\])|(?<=\\[bfnrt]))"
"""The start of a word, also after an escape such as `\\n` in JSON within a text."""
LETTERS = ascii_letters + digits


class Around(NamedTuple):
    """A secret around a sign, such as that of a mail address. A search for its left side would start at every place of
    a long run, so the sign is searched: what is right of it, then the letters left of it, and in them the start."""

    left: str
    letters: str
    right: str


CREDENTIAL_PATTERNS: dict[str, tuple[str | Around, ...]] = {
    "keys": (
        r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
        START + r"(?:sk|pk|rk)[-_][A-Za-z0-9_-]{16,}",  # OpenAI, Anthropic, OpenRouter, Stripe
        START + r"AIza[A-Za-z0-9_-]{35}",  # Google
        START + r"(?:AKIA|ASIA|ABIA)[A-Z0-9]{16}(?![A-Z0-9])",  # AWS
        START + r"(?:gh[opsur]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,}|glpat-[A-Za-z0-9_-]{20,})",
        START + r"(?:gsk|xai|hf|npm|nvapi|tvly|pypi|dop_v1)[-_][A-Za-z0-9_-]{20,}",
        START + r"xox[abeoprs]-[A-Za-z0-9-]{10,}",  # Slack
        r"(?i:(?:api|access|secret|account|subscription|private)[-_ ]?key(?:[-_]id)?)"
        r"""\\?["']?\s*[:=]\s*\\?["']?(?P<secret>[A-Za-z0-9_\-./+=]{16,})""",
    ),
    "tokens": (
        Around(  # JSON web tokens
            START + r"eyJ(?=[A-Za-z0-9_-]{8})", LETTERS + "_-", r"\.(?=([A-Za-z0-9_-]{8,}+(?:\.[A-Za-z0-9_-]*+)?))"
        ),
        r"(?i:\b(?:bearer|basic))\s+(?P<secret>[A-Za-z0-9_\-.~+/]{16,}=*)",
        START + r"ya29\.[A-Za-z0-9_-]{20,}",
        r"(?i:(?:token|passw(?:or)?d|passphrase|client[-_ ]?secret))"
        r"""\\?["']?\s*[:=]\s*\\?["']?(?P<secret>[^\s"'\\,;&{}\[\]]{8,})""",
        r"://[^\s/:@\"']*:(?P<secret>[^\s/@\"']+)@",
    ),
}
_SIGNS = (
    *("key", "token", "passw", "passphrase", "secret", "bearer", "basic", "://", "eyj", "ya29", "aiza", "xox", "akia"),
    *("asia", "abia", "sk-", "sk_", "pk-", "pk_", "rk-", "rk_", "xai", "hf-", "hf_", "npm", "nvapi", "tvly", "pypi"),
    *("dop_v1", "gho_", "ghp_", "ghs_", "ghu_", "ghr_", "github_pat", "glpat"),
)
"""Whatever is masked has one of these, in small letters. Most texts have none, and are not searched any further."""
SHORT_KEYS = re.compile(
    r"(?:\b(?:sk|pk|rk|xai|gsk|key)-[\w\-*.]{6,}|\bAIza[\w\-]{10,}|(?i:\bbearer\s+)[\w\-.~+/=*]{6,}"
    r"|(?i:\b(?:api[_-]?key|key)=)[^\s&\"']{6,})"
)
LOGIN = re.compile(r"(?<=://)[^\s/@]+(?=@)")
PACKED_LOGIN = re.compile(r"(?i:\bbasic\s+)([\w+/\-]{4,}={0,2})")
URL_SAFE = str.maketrans("-_", "+/")


class NamedPattern(NamedTuple):
    """A pattern and its name. A group `secret` is the part to remove; without it, the match is.

    With `left`, the pattern finds a sign and what is right of it, see `Around`.
    """

    name: str
    pattern: re.Pattern[str]
    left: re.Pattern[str] | None = None
    letters: str = ""

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield the start and the end of each part to remove."""
        if self.left is None:
            group: str | int = "secret" if "secret" in self.pattern.groupindex else 0
            yield from (match.span(group) for match in self.pattern.finditer(text))
            return
        done = 0
        for sign in self.pattern.finditer(text):
            at = sign.start()
            if at < done:
                continue
            first = done + len(text[done:at].rstrip(self.letters))
            done = sign.end()
            if (start := self.left.search(text, first, at)) is not None:
                done = sign.end(1)
                yield start.start(), done


def compile_pattern(name: str, given: str | Around) -> NamedPattern:
    if isinstance(given, str):
        return NamedPattern(name, re.compile(given, re.DOTALL))
    return NamedPattern(name, re.compile(given.right), re.compile(given.left), given.letters)


@lru_cache(maxsize=1)
def _credential_patterns() -> tuple[NamedPattern, ...]:
    return tuple([compile_pattern(name, each) for name, all_ in CREDENTIAL_PATTERNS.items() for each in all_])


def mask_secrets(text: str, secrets: Iterable[str] = ()) -> str:
    """Return the text with `secrets`, and all that looks like a key, a token or a login, masked."""
    for secret in secrets:
        if len(secret) >= MIN_SECRET_LENGTH:
            text = text.replace(secret, MASK)
    small = text.casefold()
    if not any([sign in small for sign in _SIGNS]):
        return text
    text = SHORT_KEYS.sub(MASK, LOGIN.sub(MASK, PACKED_LOGIN.sub(_mask_login, text)))
    for pattern in _credential_patterns():
        pieces, at = list[str](), 0
        for start, end in pattern.spans(text):
            pieces += [text[at:start], MASK]
            at = end
        text = "".join([*pieces, text[at:]]) if pieces else text
    return text


def _mask_login(found: re.Match[str]) -> str:
    """Mask a base64 login after "basic". Other text there, such as "basic authentication", stays."""
    packed = found[1].rstrip("=").translate(URL_SAFE)
    try:
        login = b64decode(packed + "=" * (-len(packed) % 4), validate=True).decode()
    except ValueError:
        return found[0]
    return MASK if ":" in login else found[0]


def get_logger(name: str) -> logging.Logger:
    """Return a logger of this package. Credentials in its messages and tracebacks are masked, whatever handles them."""
    logger = logging.getLogger(name)
    logger.addFilter(_mask_record)  # adding it again has no effect
    return logger


def _mask_record(record: logging.LogRecord) -> bool:
    """Mask what a record holds. A record without a credential keeps its arguments and its exception."""
    try:
        text = record.getMessage()
    except Exception:  # a user's object may raise any exception when it is converted
        text, record.args = record.msg, None
    if (masked := mask_secrets(text)) != text:
        record.msg, record.args = masked, None
    if record.exc_info and record.exc_info[0] is not None:
        text = "".join(traceback.format_exception(*record.exc_info)).rstrip("\n")
        if (masked := mask_secrets(text)) != text:
            record.exc_info, record.exc_text = None, masked
    return True
