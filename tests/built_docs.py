"""Checks of the website that `make docs` builds: no other host, a title and headings on every page, and its search.

    python -m tests.built_docs build/docs

The search runs in Chromium on the files themselves, without a server.
"""

import re
import sys
from pathlib import Path

from playwright.sync_api import expect

from tests.browser.chromium import launched

LOADED = re.compile(r"<(?:script|link|img|iframe)\b[^>]*?(?:src|href)=\"((?:https?:)?//[^\"]+)\"")
QUERIES = {"kill -9": "Turns", "prompt_cache_key": "", "ANT006": "Rules", "MessageCompiler.compile": ""}
"""What is searched for, and the title of a page that must be found; "" for any."""
WAIT = 60_000


def find_faults(site: Path) -> list[str]:
    """Return what is wrong with the files of a site."""
    faults = [
        f"{page.relative_to(site)} loads {address}"
        for page in site.rglob("*.html")
        for address in LOADED.findall(page.read_text(encoding="utf-8"))
    ]
    listed = re.findall(r"^- \[[^\]]+\]\(([^)]+)\)", (site / "llms.txt").read_text(encoding="utf-8"), re.M)
    faults += [f"llms.txt lists {path}, which does not exist" for path in listed if not (site / path).is_file()]
    full = (site / "llms-full.txt").read_text(encoding="utf-8")
    faults += [f"llms-full.txt lacks {path}" for path in listed if f"<!-- {path} -->" not in full]
    return faults if listed else ["llms.txt lists no page"]


def find_search_faults(site: Path) -> list[str]:
    """Return the queries for which the search of the opened files finds nothing, or not the page that has it."""
    faults: list[str] = []
    with launched() as browser:
        page = browser.new_page()
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        for query, title in QUERIES.items():
            page.goto((site / "index.html").resolve().as_uri())
            page.get_by_role("textbox", name="Search").fill(query)
            found = page.locator(".md-search-result__item", has_text=title or re.compile("."))
            try:
                expect(found.first).to_be_attached(timeout=WAIT)
            except AssertionError:
                faults.append(f"the search for {query!r} does not find {title or 'anything'}")
        faults += [f"the browser asked for {url}" for url in asked if not url.startswith(("file:", "data:", "blob:"))]
    return faults


def main() -> None:
    site = Path(sys.argv[1])
    faults = find_faults(site) or find_search_faults(site)
    pages = len([*site.rglob("*.html")])
    found = f"{site}: {pages} pages, no other host, {len(QUERIES)} searches find their pages"
    sys.stdout.write(("\n".join(faults) or found) + "\n")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
