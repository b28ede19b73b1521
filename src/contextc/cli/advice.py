"""What the library says, as somebody at a terminal can use it.

Its errors give advice to a program. The few whose advice is Python are put into the words of the command line here, and
nowhere else; what is not in the table is shown as it is.
"""

import re

from contextc.providers.named import format_of

ADVICE: tuple[tuple[str, str], ...] = (
    (
        r"`store\.conversations\(\)`, or `contextc list`, shows those there are; the first `append` makes a new one\.",
        "`contextc list` shows those there are.",
    ),
    (
        r" \(lease \d+, (\d+) s left unless renewed\)\. Wait for it with `wait=seconds`, or try again later\.",
        r". Wait until it is over, or take another conversation: --conversation NAME. If its program was killed, it is "
        r"free again in \1 s.",
    ),
    (
        r"For an endpoint of your own: cc\.provider\(.*?\), or write its url",
        "For an endpoint of your own, write its url",
    ),
    (r"(mport the session under another name)\.", r"\1 (--as)."),
    (r"(Say which one they belong to)\.", r"\1 (--as)."),
    (
        r"or name another variable: cc\.provider\(…, key=…\)\.",
        "or name the variable that holds the key: --key VARIABLE, or key in contextc.toml.",
    ),
    (
        r"or name a variable with a key: cc\.provider\(…, key=…\)\.",
        "or name the variable that holds a key: --key VARIABLE.",
    ),
    (
        r"For an endpoint of that name, say what it speaks: format=\"\w+\"\.",
        "For an endpoint of that name, write its url and its format below [providers.NAME] in contextc.toml.",
    ),
    (
        r"another one of them is chosen with format=\"\w+\"\.",
        "another one of them is chosen with format below [providers.NAME] in contextc.toml.",
    ),
    (
        r"For another: cc\.provider\(\"myserver:…\", url=\"…\"\)\.",
        "For another: --model myserver:MODEL --url http://….",
    ),
    (
        r"Give it: cc\.provider\(\"…:[^\n]*?\", window=128_000, output=8_000\), or write",
        "Give it: --window 128000, or write",
    ),
    (
        r"Say so: cc\.provider\(\"(.*?):…\", url=\"https://…/v1\", key=\"THE_VARIABLE_WITH_THE_KEY\"\)\.",
        r"Say so: --url https://…/v1 --key THE_VARIABLE_WITH_THE_KEY, or write them below [providers.\1] in "
        r"contextc.toml.",
    ),
)


UNKNOWN_FORMAT = re.compile(r"(there is no format '([^']*)'\. )(Did you mean (.*?)\? )?")


def spoken(text: str) -> str:
    """The text of an error, with advice for the command line."""
    text = UNKNOWN_FORMAT.sub(_of_a_provider, text)
    for library, terminal in ADVICE:
        text = re.sub(library, terminal, text)
    return text


def _of_a_provider(unknown: re.Match[str]) -> str:
    """A provider's name in the place of a format's: which one it speaks is known."""
    format = format_of(unknown[2])
    guessed = format in (unknown[4] or "").split(" or ")
    return f"{unknown[1]}It is a provider's name. Did you mean {format}? " if format and not guessed else unknown[0]
