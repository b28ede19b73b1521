"""The rules of every format as one page, made from their docstrings: `docs/rules.md`."""

from contextc.errors import InvalidSetting
from contextc.formats.checking import Rule
from contextc.formats.named import format_names, formatter

LONGEST = 1_200
HEAD = """# Rules

What `contextc lint` knows of each provider, and what `contextc fix` does about it. This page is made from the rules
themselves (`make rules`). Every example is checked: it breaks the rule it stands under and no other, and none after
`fix`. A code never changes its meaning.
"""


def rules_page() -> str:
    """The page, as it stands in the docs."""
    return "\n".join([HEAD, *(section(name) for name in format_names())])


def find_rule(code: str) -> Rule:
    for name in format_names():
        for rule in formatter(name).rules.rules:
            if rule.code == code.upper():
                return rule
    raise InvalidSetting(f"there is no rule {code!r}. `contextc rule` lists those there are.")


def rules_of(format: str | None = None, code: str = "") -> list[tuple[str, Rule]]:
    """The rules of a format, or of all, each with the name of its format; those whose codes begin like this one."""
    names = format_names() if format is None else (formatter(format).name,)
    return [(name, rule) for name in names for rule in formatter(name).rules.rules if rule.code.startswith(code)]


def section(name: str) -> str:
    rules = formatter(name).rules.rules
    table = [f"| [{rule.code}](#{rule.code.lower()}) | {rule.title} |" for rule in rules]
    return "\n".join([f"## {name}", "", "| code | rule |", "|---|---|", *table, "", *map(entry, rules)])


def entry(rule: Rule) -> str:
    """One rule: what, why, what the provider says, an example, the repair."""
    lines = [f"### {rule.code}", "", rule.title, *(["", rule.why] if rule.why else []), ""]
    if rule.says:
        lines += [f"The provider: “{_plain(rule.says)}”", ""]
    lines += ["```json", _shortened(rule.example), "```", "", f"Repair: {rule.repair}", ""]
    return "\n".join(lines)


def _plain(says: str) -> str:
    """The provider's sentence with its places as people read them."""
    return says.format_map(_Places())


class _Places(dict[str, str]):
    def __missing__(self, name: str) -> str:
        return f"<{name}>"


def _shortened(example: str) -> str:
    return example if len(example) <= LONGEST else f"{example[: LONGEST // 2]} … {example[-LONGEST // 2 :]}"
