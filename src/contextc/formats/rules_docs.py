"""The rules of all formats as one page, built from their texts: `docs/rules.md`."""

from contextc._sequence_comparison import find_near_names
from contextc.errors import InvalidSetting, shorten
from contextc.formats.lint_engine import Rule
from contextc.formats.registry import format_names, formatter

MAX_EXAMPLE_LENGTH = 1_200
HEADER = """# Rules

The rules that `contextc lint` checks for each provider, and the repairs that `contextc fix` makes. This page is built
from the source code (`make rules`). Every example is tested: it breaks its own rule and no other, and no rule after
`fix`. A code never changes its meaning.
"""


def render_rules() -> str:
    """Return the text of `docs/rules.md`."""
    return "\n".join([HEADER, *(render_format(name) for name in format_names())])


def find_rule(code: str) -> Rule:
    for name in format_names():
        for rule in formatter(name).rules.rules:
            if rule.code == code.upper():
                return rule
    codes = {rule.code: None for name in format_names() for rule in formatter(name).rules.rules}
    close = find_near_names(code.upper(), codes, 0.8)
    meant = f"Did you mean {close[0]}? " if close else ""
    prefixes = ", ".join(dict.fromkeys(each.rstrip("0123456789") for each in codes))
    raise InvalidSetting(
        "rule: code not found",
        got=code,
        fix=f"{meant}A code is a prefix and a number, such as ANT014. The prefixes are {prefixes}.",
        case="rule",
    )


def list_rules(format: str | None = None, code: str = "") -> list[tuple[str, Rule]]:
    """Return the rules of one format, or of all, with the name of the format.

    `code` selects the rules whose code starts with it.
    """
    names = format_names() if format is None else (formatter(format).name,)
    return [(name, rule) for name in names for rule in formatter(name).rules.rules if rule.code.startswith(code)]


def render_format(name: str) -> str:
    rules = formatter(name).rules.rules
    table = [f"| [{rule.code}](#{rule.code.lower()}) | {rule.title} |" for rule in rules]
    return "\n".join([f"## {name}", "", "| code | rule |", "|---|---|", *table, "", *map(render_rule, rules)])


def render_rule(rule: Rule) -> str:
    """Return the section of one rule: title, reason, the provider's error, an example, the repair."""
    lines = [f"### {rule.code}", "", rule.title, *(["", rule.reason] if rule.reason else []), ""]
    if rule.provider_message:
        lines += [f"The provider: “{rule.provider_message.format_map(_Places())}”", ""]
    lines += ["```json", shorten(rule.example, MAX_EXAMPLE_LENGTH), "```", "", f"Repair: {rule.repair}", ""]
    return "\n".join(lines)


class _Places(dict[str, str]):
    def __missing__(self, name: str) -> str:
        return f"{{{name}}}"
