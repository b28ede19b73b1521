"""Static files of the package, and the content security policy of the page."""

import base64
import hashlib
import re
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from contextc.web.static_files import STATIC_FOLDER, StaticFiles

MAP = '{"imports":{"preact":"./vendor/preact.js"}}'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "static"
    (made / "app").mkdir(parents=True)
    (made / "index.html").write_text(f'<script type="importmap">{MAP}</script><script type="module" src="app/main.js">')
    (made / "app" / "main.js").write_text("export {};")
    (made / "app" / "style.css").write_text("a {}")
    (made / "notes.py").write_text("secret = 1")
    (tmp_path / "secret.js").write_text("secret")
    (made / "link.js").symlink_to(tmp_path / "secret.js")
    return made


@pytest.fixture
def pages(folder: Path) -> TestClient:
    return TestClient(StaticFiles(folder), raise_server_exceptions=False)


def test_files_are_served_as_what_they_are(pages: TestClient) -> None:
    for path, kind in (("/", "text/html"), ("/app/main.js", "text/javascript"), ("/app/style.css", "text/css")):
        answer = pages.get(path)
        assert (answer.status_code, answer.headers["content-type"]) == (200, f"{kind}; charset=utf-8")


def test_the_import_map_is_the_only_script_in_the_page_that_may_run(pages: TestClient, folder: Path) -> None:
    page = pages.get("/")
    (found,) = re.findall(r"importmap\">(.*?)</script>", page.text)
    wanted = base64.b64encode(hashlib.sha256(found.encode()).digest()).decode()
    policy = page.headers["content-security-policy"]
    assert re.sub(r"v/[0-9a-f]{16}/", "", found) == MAP
    assert f"script-src 'self' 'sha256-{wanted}';" in policy
    assert "unsafe" not in policy
    (folder / "index.html").write_text("<p>no map</p><script>alert(1)</script>")
    assert "script-src 'self';" in pages.get("/").headers["content-security-policy"]


def test_a_file_is_sent_again_only_when_it_is_another(pages: TestClient, folder: Path) -> None:
    first = pages.get("/app/main.js")
    assert first.headers["cache-control"] == "no-cache"
    known = {"If-None-Match": f'"other", W/{first.headers["etag"]}'}
    same = pages.get("/app/main.js", headers=known)
    assert (same.status_code, same.content) == (304, b"")
    (folder / "app" / "main.js").write_text("export const changed = true;")
    assert pages.get("/app/main.js", headers=known).text == "export const changed = true;"


def test_a_browser_keeps_the_files_of_a_page_until_one_of_them_is_another(pages: TestClient, folder: Path) -> None:
    """Guarantee 12.2: a page and all its modules are of one version. Those of a page before are not kept."""
    forever, again = "public, max-age=31536000, immutable", "no-cache"
    (first,) = re.findall(r'src="([^"]+)"', pages.get("/").text)
    assert re.fullmatch(r"v/[0-9a-f]{16}/app/main\.js", first)
    assert pages.get(f"/{first}").headers["cache-control"] == forever
    (folder / "app" / "style.css").write_text("a { color: red }")
    page = pages.get("/")
    (second,) = re.findall(r'src="([^"]+)"', page.text)
    assert (second != first, page.headers["cache-control"]) == (True, again)
    old, new = pages.get(f"/{first}"), pages.get(f"/{second}")
    assert (old.headers["cache-control"], new.headers["cache-control"]) == (again, forever)
    assert old.text == new.text == "export {};"


@pytest.mark.parametrize(
    "path",
    [
        "/nothing.js",
        "/v/0123456789abcdef/../../secret.js",
        "/v/0123456789abcdef/..%2f..%2fsecret.js",
        "/v/0123456789abcdef//etc/passwd",
        "/app",
        "/notes.py",
        "/link.js",
        "/../secret.js",
        "/%2e%2e/secret.js",
        "/app/..%2f..%2fsecret.js",
        "//etc/passwd",
        "/%00.js",
        "/" + "x" * 5_000 + ".js",
    ],
)
def test_nothing_but_the_files_of_the_page_is_served(client: TestClient, pages: TestClient, path: str) -> None:
    assert pages.get(path).status_code != 200
    answer = client.get(path)
    assert (answer.status_code, answer.json()["error"]["kind"]) == (404, "NotFound")


def test_a_page_is_only_looked_at(client: TestClient) -> None:
    assert client.post("/", json={}).json()["error"]["kind"] == "NotAllowed"


def test_the_page_that_is_shipped_may_run_what_it_needs(client: TestClient) -> None:
    """Guarantee 12.2: no outside host, no script in the page but its import map."""
    answer = client.get("/")
    assert answer.status_code == 200
    scripts = re.findall(r"<script([^>]*)>(.*?)</script>", answer.text, re.DOTALL)
    inside = [content for _, content in scripts if content.strip()]
    assert len(inside) == 1
    hashed = base64.b64encode(hashlib.sha256(inside[0].encode()).digest()).decode()
    assert f"'sha256-{hashed}'" in answer.headers["content-security-policy"]
    for path in re.findall(r'(?:src|href)="([^"#]+)"', answer.text):
        assert not re.match(r"(https?:)?//", path), f"{path} is of an outside host"
        if not path.startswith("data:"):
            assert client.get("/" + path.removeprefix("./").removeprefix("/")).status_code == 200, path


def test_no_file_of_the_page_writes_markup_by_itself() -> None:
    """Model output is data: nothing in it is ever read as HTML."""
    for file in STATIC_FOLDER.rglob("*.js"):
        if "vendor" not in file.parts:
            found = re.search(
                r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", file.read_text()
            )
            assert found is None, f"{file.name} has {found and found[0]}"


def test_the_page_names_the_modules_it_begins_with(client: TestClient) -> None:
    """A browser requests all of them at once; modules of other views are loaded when they are opened."""
    named = re.findall(r'<link rel="modulepreload" href="v/[0-9a-f]{16}/([^"]+)">', client.get("/").text)
    assert {"app/main.js", "app/chat/chat.js", "app/virtual_list.js"} <= {*named}
    assert len(named) == len({*named})
    assert not [name for name in named if "inspect" in name]
