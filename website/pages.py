"""The pages of the documentation, in the order of `docs/README.md` with its descriptions, and the texts for agents."""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
ROW = re.compile(r"^\| (.+?) \| (.+?) \|$", re.M)
LINK = re.compile(r"\[([^\]]+)\]\(([^)#]+\.md)\)")
TITLE = re.compile(r"^# (.+)$", re.M)


class Page(NamedTuple):
    path: str
    title: str
    description: str


def list_sections() -> dict[str, list[Page]]:
    """Return the pages below each heading of the list of pages."""
    found: dict[str, list[Page]] = {}
    for section in (DOCS / "README.md").read_text(encoding="utf-8").split("\n## ")[1:]:
        heading, _, body = section.partition("\n")
        pages = found.setdefault(heading, [])
        for cell, description in ROW.findall(body):
            for _, path in LINK.findall(cell):
                title = TITLE.search((DOCS / path).read_text(encoding="utf-8"))
                pages.append(Page(path, title[1] if title else path, description))
    return found


def make_llms_index() -> str:
    """Return llms.txt: what an agent needs to begin, and the list of all pages."""
    lines = [(ROOT / "website" / "for_agents.md").read_text(encoding="utf-8").rstrip(), ""]
    for heading, pages in list_sections().items():
        lines += [f"## {heading}", "", *(f"- [{page.title}]({page.path}): {page.description}" for page in pages), ""]
    return "\n".join(lines)


def make_llms_full() -> str:
    """Return llms-full.txt: all pages as one text."""
    parts = [make_llms_index()]
    for pages in list_sections().values():
        for page in pages:
            parts.append(f"\n\n<!-- {page.path} -->\n\n{(DOCS / page.path).read_text(encoding='utf-8').strip()}\n")
    return "".join(parts)
