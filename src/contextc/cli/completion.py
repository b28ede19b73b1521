"""`contextc completion`: a script with which a shell completes commands, options, conversations and other values.

The script calls this command with the line, and gets what its last word can become. The command reads the store without
changing it. It prints nothing if it fails, because a message would become a part of the line.
"""

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Annotated, Any, Literal, get_args, get_origin

from contextc.cli.command_line import Argument, Option, Parameter, read_parameters

Shell = Literal["bash", "zsh", "fish"]
MAX_NAMES = 500
SAFE = re.compile(r"[\w@%+=:,./-]+", re.ASCII)
"""What a shell reads as one word without a special meaning. Names of conversations may come from other programs."""
SCRIPTS = {
    "bash": """\
# In ~/.bashrc: eval "$(contextc completion bash)"
_contextc() {
    local IFS=$'\\n' line=${COMP_LINE:0:COMP_POINT}
    local word=${line##* }
    local rest=""
    case $word in *:*) rest=${word%"${word##*:}"} ;; esac
    COMPREPLY=($(contextc completion bash --line "$line" 2>/dev/null))
    COMPREPLY=("${COMPREPLY[@]#"$rest"}")
}
complete -o default -F _contextc contextc
""",
    "zsh": """\
# In ~/.zshrc, after compinit: eval "$(contextc completion zsh)"
_contextc() {
    local -a found
    found=(${(f)"$(contextc completion zsh --line "$LBUFFER" 2>/dev/null)"})
    if (( $#found )); then compadd -- $found; else _files; fi
}
compdef _contextc contextc
""",
    "fish": """\
# In ~/.config/fish/completions/contextc.fish: contextc completion fish | source
complete -c contextc -a '(contextc completion fish --line (commandline -cp) 2>/dev/null)'
""",
}


def run(
    shell: Annotated[Shell, Argument(help="bash, zsh or fish.")],
    line: Annotated[
        str | None, Option("--line", hidden=True, help="Print what the last word of this line can become.")
    ] = None,
) -> None:
    """Print a script for your shell: it completes commands, options, and names of conversations, formats and rules."""
    if line is None:
        sys.stdout.write(SCRIPTS[shell])
        return
    with suppress(Exception):  # see above
        sys.stdout.writelines([f"{each}\n" for each in complete(line.split(" ")[1:])])


def complete(words: Sequence[str]) -> list[str]:
    """Return what the last word can become, after the words before it."""
    from contextc.cli import COMMANDS, load_command

    *before, last = words or [""]
    before = [each for each in before if each]
    if not before:
        return _starting(["--help", "--version"] if last.startswith("-") else COMMANDS, last)
    if before[0] not in COMMANDS or "--" in before:
        return []
    parameters = read_parameters(load_command(before[0]))
    options = {name: each for each in parameters for name in (*each.names, *each.opposites)}
    opened = options.get(before[-1])
    if opened is not None and not opened.is_flag:
        return _starting(_values(opened, before), last)
    if last.startswith("-"):
        hidden = {name for name, each in options.items() if isinstance(each.declared, Option) and each.declared.hidden}
        return _starting([each for each in (*options, "--help") if each not in hidden], last)
    positional = [each for each in parameters if isinstance(each.declared, Argument)]
    place = _count_arguments(before[1:], options)
    found = positional[min(place, len(positional) - 1)] if positional else None
    if found is None or (place >= len(positional) and not found.is_list):
        return []
    return _starting(_values(found, before), last)


def _starting(names: Iterable[str], prefix: str) -> list[str]:
    return [each for each in names if each.startswith(prefix) and SAFE.fullmatch(each)][:MAX_NAMES]


def _count_arguments(words: Sequence[str], options: dict[str, Parameter]) -> int:
    """Return how many of the words are arguments: neither options nor their values."""
    count, values = 0, 0
    for each in words:
        if values:
            values -= 1
        elif each.startswith("-") and len(each) > 1:
            option = options.get(each)
            values = len(option.types) if option is not None and not option.is_flag else 0
        else:
            count += 1
    return count


def _values(parameter: Parameter, words: Sequence[str]) -> Iterable[str]:
    kind: Any = parameter.types[0]
    if get_origin(kind) is Literal:
        return get_args(kind)
    source = SOURCES.get(parameter.key)
    return source(words) if source is not None else ()


def _list_conversations(words: Sequence[str]) -> list[str]:
    from contextc.config import read_settings
    from contextc.store import open_for_inspection

    given = words[words.index("--store") + 1] if "--store" in words[:-1] else None
    with open_for_inspection(read_settings(given).store.value) as store:
        return [each.name for each in store.conversations()]


def _list_formats(_: Sequence[str]) -> Iterable[str]:
    from contextc.formats.registry import format_names

    return format_names()


def _list_rules(_: Sequence[str]) -> Iterable[str]:
    from contextc.formats.rules_docs import list_rules

    return [rule.code for _, rule in list_rules(None, "")]


SOURCES: dict[str, Callable[[Sequence[str]], Iterable[str]]] = {
    "conversation": _list_conversations,
    "names": _list_conversations,
    "format": _list_formats,
    "code": _list_rules,
}
"""What lists the values of a parameter, by its name."""
