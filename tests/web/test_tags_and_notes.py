"""Tags and notes over HTTP."""

import httpx

import contextc as cc
from tests.web.conftest import Served


def test_tags_are_changed_and_filter_the_list(server: Served) -> None:
    """Guarantee 2.9."""
    store = server.desk.store
    for name in ("a/b", "other"):
        store.append(name, cc.user("Hello."))
    url = f"{server.url}/api/conversations"
    changed = httpx.post(f"{url}/a%2Fb/tags", json={"add": ["bug", "later"], "remove": ["missing"]})
    assert (changed.status_code, changed.json()) == (200, ["bug", "later"])
    assert httpx.post(f"{url}/a%2Fb/tags", json={"remove": ["later"]}).json() == ["bug"]
    assert httpx.get(f"{server.url}/api/tags").json() == ["bug"]
    for search in ("", "hello"):
        found = httpx.get(url, params={"tag": "bug", "search": search}).json()["conversations"]
        assert [(each["name"], each["tags"]) for each in found] == [("a/b", ["bug"])]
    hits = httpx.get(f"{server.url}/api/search", params={"tag": "bug", "text": "hello"}).json()
    assert [each["conversation"]["name"] for each in hits["found"]] == ["a/b"]
    assert httpx.get(f"{url}/a%2Fb").json()["tags"] == ["bug"]
    assert "tags" not in httpx.get(f"{url}/other").json()
    assert httpx.post(f"{url}/a%2Fb/tags", json={"add": ["a,b"]}).status_code == 400
    assert httpx.post(f"{url}/missing/tags", json={"add": ["bug"]}).status_code == 404


def test_notes_are_added_listed_and_removed(server: Served) -> None:
    """Guarantee 2.9."""
    server.desk.store.append("demo", cc.user("Hello."))
    url = f"{server.url}/api/conversations/demo/notes"
    made = httpx.post(url, json={"text": "<b>look</b>", "request": "ab12/3"})
    assert (made.status_code, made.json()["text"], made.json()["who"]) == (201, "<b>look</b>", "http")
    assert httpx.get(url).json() == [made.json()]
    assert httpx.post(url, json={"text": " "}).status_code == 400
    number = made.json()["number"]
    assert httpx.delete(f"{url}/{number}").status_code == 200
    assert (httpx.get(url).json(), httpx.delete(f"{url}/{number}").status_code) == ([], 400)
