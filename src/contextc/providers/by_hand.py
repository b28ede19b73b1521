"""A request as somebody would send it by hand: a command for a shell, or a few lines of Python with the vendor's SDK.

Keys are never in it, only the names of the variables that hold them. Whatever the request says, the shell and Python
read it as it is: the command sends these very bytes, the program an equal request. A server that contextc starts by
itself is asked for its address first. Where none is called, because a program or a recording answers, words say so.
"""

import re
import shlex
from collections.abc import Iterable, Iterator
from typing import cast
from urllib.parse import quote

from contextc._json import JSON, JSONObject, decode
from contextc.config import masked
from contextc.errors import ContextcError
from contextc.formats.base import Formatter
from contextc.providers.named import (
    Provider,
    client_of,
    hand_tables,
    has_address,
    program_tables,
    served_tables,
)

VARIABLE = re.compile(r"\$([A-Z_][A-Z0-9_]*)")
ADDRESS = "$BASE_URL"  # where nobody knows it
WIDTH = 100
INDENT = "    "


def as_curl(provider: Provider, formatter: Formatter, body: bytes, *, session: str = "", directory: str = "") -> str:
    """A command that sends these bytes. `session` and `directory` are for programs, which have one."""
    told = hand_tables().get(formatter.name)
    if told is None or not _is_called(provider, formatter):
        return _comment(_in_words(provider, formatter)) + _program(provider, session, directory)
    served = served_tables().get(provider.client)
    key = "SERVED_KEY" if served else _key(provider, told)
    headers = {"Content-Type": "application/json"}
    headers |= {
        name: value.format(key=f"${key}") for name, value in told["headers"].items() if key or "{key}" not in value
    }
    url = f"$SERVED_URL{_version(told)}" if served else _address(provider, told)
    path = told["path"].format(model=quote(provider.asks_for, safe=""))
    lines = [f"printf %s {shlex.quote(body.decode())} | curl {_quoted(url + path)}"]
    lines += [f"  -H {_quoted(f'{name}: {value}')}" for name, value in headers.items()]
    unknown = _comment([_nowhere(provider)]) if url == ADDRESS else ""
    if served:
        unknown = _comment([_started(provider)]) + served["shell"]
    return unknown + " \\\n".join([*lines, "  --data-binary @-"]) + "\n"


def as_python(provider: Provider, formatter: Formatter, body: bytes, *, session: str = "", directory: str = "") -> str:
    """A program that sends an equal request."""
    told, request = hand_tables().get(formatter.name), cast(JSONObject, decode(body))
    if told is None or not _is_called(provider, formatter):
        command = _program(provider, session, directory).strip()
        words = [*_in_words(provider, formatter), *([f"To go on with it in a shell: {command}"] if command else [])]
        return f"{_comment(words)}request = {literal(request)}\n"
    arguments, unknown = _split(formatter, formatter.arguments(request, provider.asks_for), told)
    served, imports = served_tables().get(provider.client), [told["imports"]]
    key, url = _key(provider, told), _address(provider, told)
    options = [*told.get("always", ())]
    if served:
        imports = [served["imports"], told["imports"], "", served["python"]]
        address = f"{served['url']} + {_version(told)!r}" if _version(told) else served["url"]
        options += [told["key_option"].format(key=served["key"]), told["url_option"].format(url=address)]
        url = address
    else:
        options += _credentials(told, key)
        if provider.url or url == ADDRESS:
            options.append(told["url_option"].format(url=_environment(url)))
    source = "\n".join([*imports, *([] if served else [""]), f"client = {told['client']}({', '.join(options)})"])
    needs = "import os\n\n" if "os.environ" in source else ""
    extra = f", {told['unknown']}={literal(unknown)}" if unknown else ""
    printed = "for event in answer:\n    print(event)\n" if request.get("stream") is True else "print(answer)\n"
    remark = _comment([_started(provider)] if served else [_nowhere(provider)] if url == ADDRESS else [])
    if told.get("leaves_out"):
        remark += _comment([f"The SDK leaves out {told['leaves_out']}."])
    call = f"answer = {told['call']}(**request{extra})"
    return f"{remark}{needs}{source}\n\nrequest = {literal(arguments)}\n\n{call}\n{printed}"


def _is_called(provider: Provider, formatter: Formatter) -> bool:
    """Whether it is called at an address, by those who speak the format natively."""
    return provider.client in ("", client_of(formatter.name)) or provider.client in served_tables()


def _key(provider: Provider, told: JSONObject) -> str:
    """The variable that holds the key; "" where none is sent. An address of one's own gets nobody else's key."""
    if provider.key or provider.url or not has_address(provider):
        return provider.key
    return told.get("key", "")


def _address(provider: Provider, told: JSONObject) -> str:
    if provider.url:
        return masked(provider.url.rstrip("/"))
    return told["url"] if has_address(provider) else ADDRESS


def _credentials(told: JSONObject, key: str) -> list[str]:
    option = told.get("key_option" if key else "keyless_option", "")
    return [option.format(key=f'os.environ["{key}"]')] if option else []


def _started(provider: Provider) -> str:
    return f"The server of {provider.name} is on this machine, and is started where it does not run."


def _version(told: JSONObject) -> str:
    """What the vendor's address ends with, behind its host."""
    return "/" + told["url"].partition("://")[2].partition("/")[2] if "/" in told["url"].partition("://")[2] else ""


def _nowhere(provider: Provider) -> str:
    return f"It is not known where {provider.name} is: set BASE_URL to its address."


def _split(formatter: Formatter, arguments: JSONObject, told: JSONObject) -> tuple[JSONObject, JSONObject]:
    """The arguments that every SDK of that make knows, and the others, which go beside them."""
    if not told.get("unknown"):
        return arguments, {}
    try:
        request = formatter.decode_request(arguments)
        strange = {place.partition(".")[0] for place in formatter.settings.read(request.settings).unread}
    except (
        ContextcError,
        KeyError,
        TypeError,
        AttributeError,
        ValueError,
    ):  # somebody else's request, put in place of ours
        strange = set[str]()
    known = {name: value for name, value in arguments.items() if name not in strange}
    return known, {name: value for name, value in arguments.items() if name in strange}


# ── in words ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _in_words(provider: Provider, formatter: Formatter) -> list[str]:
    table = program_tables().get(provider.client)
    if table is not None:
        return [f"This went through a program ({table['command']}), which keeps the conversation itself."]
    if provider.client and formatter.name in hand_tables():
        return [f"Nobody is called at an address: {provider.name} answers inside of contextc."]
    return [f"No provider is called with the format {formatter.name}."]


def _program(provider: Provider, session: str, directory: str) -> str:
    """The command with which a person goes on with the session of a program."""
    table = program_tables().get(provider.client)
    if table is None:
        return ""
    command = str(table["resume"]).format(session=shlex.quote(session)) if session else str(table["command"])
    return f"cd {shlex.quote(directory)} && {command}\n" if directory else f"{command}\n"


def _comment(lines: Iterable[str]) -> str:
    return "".join(f"# {line}\n" for text in lines for line in text.splitlines())


# ── quoting ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _quoted(text: str) -> str:
    """A word of a shell in which variables in capitals are filled in, and nothing else happens."""
    if not VARIABLE.search(text):
        return shlex.quote(text)
    parts = VARIABLE.split(text)
    plain = [re.sub(r'([\\"$`])', r"\\\1", part) for part in parts[::2]]
    named = [f"${{{name}}}" for name in parts[1::2]]
    return f'"{"".join(each for pair in zip(plain, [*named, ""], strict=True) for each in pair)}"'


def _environment(text: str) -> str:
    """A text as Python says it, with a variable of the environment in its place."""
    found = VARIABLE.fullmatch(text)
    return f'os.environ["{found[1]}"]' if found else repr(text)


def literal(value: JSON, indent: str = "") -> str:
    """A value as Python writes it, over several lines where it is long."""
    return "".join(_pieces(value, indent))


def _pieces(value: JSON, indent: str) -> Iterator[str]:
    pairs = _pairs(value)
    if not pairs or (_is_short(pairs) and len(repr(value)) + len(indent) < WIDTH):
        yield repr(value)
        return
    inner = indent + INDENT
    yield "{\n" if isinstance(value, dict) else "[\n"
    for name, each in pairs:
        yield inner if name is None else f"{inner}{name!r}: "
        yield from _pieces(each, inner)
        yield ",\n"
    yield indent + ("}" if isinstance(value, dict) else "]")


def _pairs(value: JSON) -> list[tuple[str | None, JSON]]:
    """What an object or a list holds; a list's have no names."""
    if isinstance(value, dict):
        return list(cast(JSONObject, value).items())
    return [(None, each) for each in cast(list[JSON], value)] if isinstance(value, list) else []


def _is_short(pairs: list[tuple[str | None, JSON]]) -> bool:
    """Whether nothing long is in it: so that nothing long is written only to be thrown away."""
    plain = all(not isinstance(each, dict | list) and len(str(each)) < WIDTH for _, each in pairs[:WIDTH])
    return len(pairs) < WIDTH // 4 and plain
