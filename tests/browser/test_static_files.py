"""Static files of the page: no text becomes markup or code, and nothing refers to another host."""

import re
from hashlib import sha256

from contextc.messages import CLIENT_CONTEXT_HEADINGS, CLIENT_CONTEXT_TAGS
from contextc.web.static_files import STATIC_FOLDER

FORBIDDEN = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|dangerouslySetInnerHTML|createContextualFragment|DOMParser|srcdoc"
    r"|document\.write|\beval\b|\bFunction\(|new Function|setAttribute\(\s*[\"']on"
)
HOST = re.compile(r"(?:https?:)?//(?:[\w-]+\.)+[a-z]{2,}", re.IGNORECASE)
NAMES = {"http://www.w3.org"}
"""What names a kind of markup, and is never asked for anything."""
SCRIPTS = sorted(STATIC_FOLDER.glob("app/**/*.js"))
FILES = sorted(path for path in STATIC_FOLDER.rglob("*") if path.suffix in (".js", ".css", ".html", ".svg"))


def test_there_are_files() -> None:
    assert len(SCRIPTS) > 30
    assert len(FILES) > len(SCRIPTS)


def test_no_text_becomes_markup_or_code() -> None:
    """Guarantee 12.3: everything on the page is made node by node."""
    for path in SCRIPTS:
        assert FORBIDDEN.findall(path.read_text()) == [], path


def test_nothing_comes_from_another_host() -> None:
    """Guarantee 12.3: the page works without a network, and sends nothing to other hosts."""
    for path in FILES:
        assert {host for host in HOST.findall(path.read_text()) if host not in NAMES} == set(), path


def test_vendored_modules_are_those_of_the_readme() -> None:
    """What others wrote is kept as it was built, so that anyone can build it again and compare."""
    vendor = STATIC_FOLDER / "vendor"
    rows = re.findall(r"^\| `([\w-]+\.js)` .* `([0-9a-f]{64})` \|$", (vendor / "README.md").read_text(), re.MULTILINE)
    assert dict(rows) == {path.name: sha256(path.read_bytes()).hexdigest() for path in vendor.glob("*.js")}


def test_the_page_knows_the_same_client_context() -> None:
    """Titles leave the same blocks out that the chat collapses."""
    text = (STATIC_FOLDER / "app/chat/client_context.js").read_text()
    tables = re.findall(r"(?:TAGS|HEADINGS) = \[(.*?)\];", text, re.DOTALL)
    assert [tuple(re.findall(r'"([^"]+)"', each)) for each in tables] == [CLIENT_CONTEXT_TAGS, CLIENT_CONTEXT_HEADINGS]
