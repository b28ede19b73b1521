"""Tags and notes: written by people, filtered by, exported, redacted and deleted, and sent to no model."""

import pytest

import contextc as cc
from contextc.errors import InvalidImport, InvalidInput, UnknownConversation
from contextc.interchange import export_lines, import_lines
from contextc.store.tags_and_notes import MAX_NOTE, MAX_TAG, MAX_TAGS

HOSTILE = "<img src=x onerror=alert(1)> \x1b[31m\u202e"


def filled(store: cc.Store, *names: str) -> None:
    for name in names:
        store.append(name, cc.user(f"Hello from {name}."))


def test_tags_are_added_removed_and_listed(store: cc.Store) -> None:
    """Guarantee 2.9."""
    filled(store, "one", "two")
    assert store.tag("one", "bug", " two  words ", "bug") == ["bug", "two words"]
    assert store.tag("two", "bug", "älter") == ["bug", "älter"]
    assert (store.tags("one"), store.tags()) == (["bug", "two words"], ["bug", "two words", "älter"])
    assert store.untag("one", "bug", "missing") == ["two words"]
    assert store.overview("one").tags == ["two words"]
    store.fork("one", "fork")
    assert store.tags("fork") == []
    with pytest.raises(UnknownConversation):
        store.tag("three", "bug")


@pytest.mark.parametrize("tag", ["", "  ", "a,b", "x" * (MAX_TAG + 1), "a\x1bb", "a\u202eb", 5])
def test_a_wrong_tag_is_refused_and_none_is_stored(store: cc.Store, tag: str) -> None:
    filled(store, "one")
    with pytest.raises(InvalidInput, match="a tag must"):
        store.tag("one", "good", tag)
    assert store.tags("one") == []


def test_the_number_of_tags_is_limited(store: cc.Store) -> None:
    filled(store, "one")
    store.tag("one", *[f"tag {number}" for number in range(MAX_TAGS)])
    with pytest.raises(InvalidInput, match=f"at most {MAX_TAGS} tags"):
        store.tag("one", "more")


def test_the_list_and_the_search_are_filtered_by_tag(store: cc.Store) -> None:
    """Guarantee 2.9: over all pages."""
    filled(store, *[f"c{number}" for number in range(7)])
    for number in (1, 3, 5, 6):
        store.tag(f"c{number}", "bug")
    store.tag("c2", "other")
    for search in ("", "hello", "c"):
        found: list[str] = []
        mark = ""
        while True:
            page = store.overviews(tag="bug", limit=2, before=mark, search=search)
            found += [each.name for each in page.found]
            if not (mark := page.next):
                break
        assert sorted(found) == ["c1", "c3", "c5", "c6"], search
    assert [each.name for each in store.overviews(tag="other").found] == ["c2"]
    assert store.overviews(tag="none").found == []


def test_notes_keep_their_text_and_their_time(store: cc.Store) -> None:
    """Guarantee 2.9."""
    filled(store, "one")
    first = store.add_note("one", f" {HOSTILE}\nsecond line ", who="ann")
    second = store.add_note("one", "about a request", request="ab12/3")
    assert (first.text, first.who, first.time > 0) == (f"{HOSTILE}\nsecond line", "ann", True)
    assert (second.request, store.notes("one")) == ("ab12/3", [first, second])
    store.delete_note("one", first.number)
    assert store.notes("one") == [second]
    filled(store, "two")
    store.add_note("two", "first\nÜBER  the fence, and far away")
    store.append("two", cc.user("über the fence, in a message"))
    for search in ("über THE fence", "fence, and"):
        page = store.overviews(search=search, limit=1)
        found = page.found + (store.overviews(search=search, before=page.next).found if page.next else [])
        assert [(each.name, each.hit) for each in found] == [("two", 0)]
        assert found[0].excerpt == "first ÜBER the fence, and far away"
    assert store.overviews(search="fence, and", tag="none").found == []
    with pytest.raises(InvalidInput, match="has no note"):
        store.delete_note("two", second.number)
    for wrong in ("", " \n", "x" * (MAX_NOTE + 1)):
        with pytest.raises(InvalidInput, match="a note must"):
            store.add_note("one", wrong)


def test_no_model_gets_them(store: cc.Store) -> None:
    """Guarantee 2.9: the next request has the same bytes."""
    filled(store, "one")
    model = "anthropic:claude-opus-5-5"
    before = cc.MessageCompiler(store, model).compile("one").body
    store.tag("one", "a secret tag")
    store.add_note("one", "a secret note")
    assert cc.MessageCompiler(store, model).compile("one").body == before


def test_an_export_has_them_and_an_import_restores_them(store: cc.Store) -> None:
    """Guarantee 2.9. A file without them has the version that older readers accept."""
    filled(store, "one")
    assert b'"version":1' in next(iter(export_lines(store, "one")))
    store.tag("one", "bug", "älter")
    note = store.add_note("one", HOSTILE, who="ann", request="ab12/3")
    lines = list(export_lines(store, "one"))
    assert b'"version":3' in lines[0]
    import_lines(store, lines, "copy")
    assert store.tags("copy") == ["bug", "älter"]
    assert [(each.text, each.time, each.who, each.request) for each in store.notes("copy")] == [
        (note.text, note.time, "ann", "")
    ]
    wrong = [line.replace(b'"bug"', b'"b,ug"') for line in lines]
    with pytest.raises(InvalidImport, match="a tag must"):
        import_lines(store, wrong, "other")
    assert "other" not in [each.name for each in store.conversations()]


def test_deleting_and_redacting_removes_them(store: cc.Store) -> None:
    """Guarantee 2.8."""
    filled(store, "one")
    store.tag("one", "the secret word")
    store.add_note("one", "It is the secret word.")
    store.redact_text("one", "secret word")
    assert "secret" not in str((store.tags("one"), store.notes("one")))
    store.delete("one")
    for table in ("tag", "note"):
        assert store.read(lambda tx, name=table: tx.rows(f"SELECT * FROM main.{name}")) == []
