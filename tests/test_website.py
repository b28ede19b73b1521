"""The website that `make docs` builds: its pages, the API of its reference, and the texts for agents."""

import re
from pathlib import Path

from website.pages import list_sections, make_llms_full, make_llms_index

import contextc as cc

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


def test_every_page_has_a_place_in_the_navigation() -> None:
    listed = [page.path for pages in list_sections().values() for page in pages]
    assert sorted(listed) == sorted(
        path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md") if path != DOCS / "README.md"
    )
    assert [page.path for pages in list_sections().values() for page in pages if not page.description] == []


def test_the_index_for_agents_lists_every_page_and_the_full_text_has_it() -> None:
    index, full = make_llms_index(), make_llms_full()
    assert (DOCS / "llms.txt").read_text(encoding="utf-8") == index, "run `make rules`"
    assert index.startswith("# contextc\n\n> ")
    linked = re.findall(r"^- \[.+?\]\((.+?)\): .+", index, re.M)
    assert linked == [page.path for pages in list_sections().values() for page in pages]
    assert all((DOCS / path).read_text(encoding="utf-8").strip() in full for path in linked)


def test_every_module_of_a_public_name_has_a_page_of_the_api() -> None:
    hooks = (ROOT / "website" / "hooks.py").read_text(encoding="utf-8")
    modules = {getattr(cc, name).__module__.split(".")[1] for name in cc.__all__}
    named = set(re.findall(r'"(\w+)"', hooks[hooks.index("MODULES") : hooks.index("def on_config")]))
    assert modules - named == {"errors"}, "errors have a page of their own; others need an entry in MODULES"


def test_the_theme_is_loaded_from_no_other_host() -> None:
    settings = (ROOT / "website" / "mkdocs.yml").read_text(encoding="utf-8")
    assert "font: false" in settings
    assert "http" not in settings.replace("prefers-color-scheme", "")
