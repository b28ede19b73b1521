"""Snippets that send a stored request again: a curl command, or a short Python program with the vendor's SDK.

A snippet contains no keys, only the names of the environment variables that hold them. Of the headers of a provider, it
has only the beta flags. All content is quoted: the
command sends exactly these bytes, the program an equal request. For a server that contextc starts, the snippet first
asks for its URL. If no URL is called, because a program or a recording answers, a comment states it.
"""

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import cast
from urllib.parse import quote

from contextc._json import JSON, JSONObject, decode
from contextc.config import mask_secrets
from contextc.errors import ContextcError
from contextc.formats.base import Formatter
from contextc.providers.registry import (
    Provider,
    client_of_format,
    has_url,
    local_server_tables,
    program_tables,
    sdk_call_of_format,
    snippet_tables,
)

SHELL_VARIABLE = re.compile(r"\$([A-Z_][A-Z0-9_]*)")
UNKNOWN_URL = "$BASE_URL"  # if the URL is unknown
WIDTH = 100
INDENT = "    "


def as_curl(
    provider: Provider,
    formatter: Formatter,
    body: bytes,
    *,
    session: str = "",
    directory: str = "",
    betas: Sequence[str] = (),
) -> str:
    """Return a shell command that sends these bytes, with beta flags. `session` and `directory` apply to CLI agents."""
    table = snippet_tables().get(formatter.name)
    if table is None or not _is_called(provider, formatter):
        return _comment(_explanation(provider, formatter)) + _resume_command(provider, session, directory)
    served = local_server_tables().get(provider.client)
    key = "SERVED_KEY" if served else _key(provider, table)
    headers = {"Content-Type": "application/json"}
    headers |= {
        name: value.format(key=f"${key}") for name, value in table["headers"].items() if key or "{key}" not in value
    }
    headers |= provider.beta_headers(betas)
    url = f"$SERVED_URL{_url_path(table)}" if served else _address(provider, table)
    path = table["path"].format(model=quote(provider.model_id, safe=""))
    lines = [f"printf %s {shlex.quote(body.decode())} | curl {_quoted(url + path)}"]
    lines += [f"  -H {_quoted(f'{name}: {value}')}" for name, value in headers.items()]
    unknown = _comment([_unknown_url_text(provider)]) if url == UNKNOWN_URL else ""
    if served:
        unknown = _comment([_local_server_text(provider)]) + served["shell"]
    return unknown + " \\\n".join([*lines, "  --data-binary @-"]) + "\n"


def as_python(
    provider: Provider,
    formatter: Formatter,
    body: bytes,
    *,
    session: str = "",
    directory: str = "",
    betas: Sequence[str] = (),
) -> str:
    """Return a Python program that sends an equal request, with beta flags."""
    table, request = snippet_tables().get(formatter.name), cast(JSONObject, decode(body))
    if table is None or not _is_called(provider, formatter):
        command = _resume_command(provider, session, directory).strip()
        comments = [*_explanation(provider, formatter), *([f"To continue it in a shell: {command}"] if command else [])]
        return f"{_comment(comments)}request = {python_literal(request)}\n"
    arguments, unknown = _split(formatter, formatter.sdk_arguments(request, provider.model_id), table)
    served, imports = local_server_tables().get(provider.client), [table["imports"]]
    key, url = _key(provider, table), _address(provider, table)
    options = [*table.get("always", ())]
    if served:
        imports = [served["imports"], table["imports"], "", served["python"]]
        address = f"{served['url']} + {_url_path(table)!r}" if _url_path(table) else served["url"]
        options += [table["key_option"].format(key=served["key"]), table["url_option"].format(url=address)]
        url = address
    else:
        option = table.get("key_option" if key else "keyless_option", "")
        options += [option.format(key=f'os.environ["{key}"]')] if option else []
        if provider.url or url == UNKNOWN_URL:
            found = SHELL_VARIABLE.fullmatch(url)
            options.append(table["url_option"].format(url=f'os.environ["{found[1]}"]' if found else repr(url)))
    source = "\n".join([*imports, *([] if served else [""]), f"client = {table['client']}({', '.join(options)})"])
    needs = "import os\n\n" if "os.environ" in source else ""
    extra = f", {table['unknown']}={python_literal(unknown)}" if unknown else ""
    extra += f", extra_headers={python_literal({**flags})}" if (flags := provider.beta_headers(betas)) else ""
    printed = "for event in answer:\n    print(event)\n" if request.get("stream") is True else "print(answer)\n"
    remark = _comment(
        [_local_server_text(provider)] if served else [_unknown_url_text(provider)] if url == UNKNOWN_URL else []
    )
    if table.get("leaves_out"):
        remark += _comment([f"The SDK leaves out {table['leaves_out']}."])
    call = f"answer = {sdk_call_of_format(formatter.name, betas)}(**request{extra})"
    return f"{remark}{needs}{source}\n\nrequest = {python_literal(arguments)}\n\n{call}\n{printed}"


def _is_called(provider: Provider, formatter: Formatter) -> bool:
    """Return True if requests are sent to a URL by the client of this format."""
    return provider.client in ("", client_of_format(formatter.name)) or provider.client in local_server_tables()


def _key(provider: Provider, table: JSONObject) -> str:
    """Return the variable that holds the key, or "" if none is sent. A custom URL never gets the vendor's key."""
    if provider.key or provider.url or not has_url(provider):
        return provider.key
    return table.get("key", "")


def _address(provider: Provider, told: JSONObject) -> str:
    if provider.url:
        return mask_secrets(provider.url.rstrip("/"))
    return told["url"] if has_url(provider) else UNKNOWN_URL


def _local_server_text(provider: Provider) -> str:
    return f"The server of {provider.name} runs on this machine. It is started if it is not running."


def _url_path(told: JSONObject) -> str:
    """Return the path of the vendor's URL."""
    return "/" + told["url"].partition("://")[2].partition("/")[2] if "/" in told["url"].partition("://")[2] else ""


def _unknown_url_text(provider: Provider) -> str:
    return f"The URL of {provider.name} is unknown: set BASE_URL."


def _split(formatter: Formatter, arguments: JSONObject, told: JSONObject) -> tuple[JSONObject, JSONObject]:
    """Return the arguments that the SDK's method accepts, and the others, which are passed as extra fields."""
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
    ):  # the request was replaced by one of another format
        strange = set[str]()
    known = {name: value for name, value in arguments.items() if name not in strange}
    return known, {name: value for name, value in arguments.items() if name in strange}


# ── comments ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _explanation(provider: Provider, formatter: Formatter) -> list[str]:
    table = program_tables().get(provider.client)
    if table is not None:
        return [f"This request was sent through a program ({table['command']}), which stores the conversation itself."]
    if provider.client and formatter.name in snippet_tables():
        return [f"No URL is called: {provider.name} answers inside contextc."]
    return [f"No provider accepts requests in the format {formatter.name}."]


def _resume_command(provider: Provider, session: str, directory: str) -> str:
    """Return the command that continues the session of a CLI agent."""
    table = program_tables().get(provider.client)
    if table is None:
        return ""
    command = str(table["resume"]).format(session=shlex.quote(session)) if session else str(table["command"])
    return f"cd {shlex.quote(directory)} && {command}\n" if directory else f"{command}\n"


def _comment(lines: Iterable[str]) -> str:
    return "".join(f"# {line}\n" for text in lines for line in text.splitlines())


# ── quoting ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _quoted(text: str) -> str:
    """Quote a shell word. Variables in capitals are expanded, nothing else is."""
    if not SHELL_VARIABLE.search(text):
        return shlex.quote(text)
    parts = SHELL_VARIABLE.split(text)
    plain = [re.sub(r'([\\"$`])', r"\\\1", part) for part in parts[::2]]
    named = [f"${{{name}}}" for name in parts[1::2]]
    return f'"{"".join(each for pair in zip(plain, [*named, ""], strict=True) for each in pair)}"'


def python_literal(value: JSON, indent: str = "") -> str:
    """Return a value as a Python literal, on several lines if it is long."""
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
    """Return the items of an object or a list. Items of a list have the name None."""
    if isinstance(value, dict):
        return list(cast(JSONObject, value).items())
    return [(None, each) for each in cast(list[JSON], value)] if isinstance(value, list) else []


def _is_short(pairs: list[tuple[str | None, JSON]]) -> bool:
    """Return True if all items are short. This avoids a `repr` of long values only to measure them."""
    plain = all(not isinstance(each, dict | list) and len(str(each)) < WIDTH for _, each in pairs[:WIDTH])
    return len(pairs) < WIDTH // 4 and plain
