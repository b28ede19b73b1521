"""Hooks of mkdocs: the navigation from `docs/README.md`, the pages of the repository, the API, and texts for agents."""

import re
import shutil
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parents[1]))
from website.pages import DOCS, ROOT, TITLE, list_sections, make_llms_full

REPOSITORY_PAGES = ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
LINK = re.compile(r"(!?\[[^\]]*\])\(([^)#\s]+)(#[^)\s]*)?\)")
WORKER_SHIM = "https://unpkg.com/iframe-worker/shim"
"""The theme loads this from another host, for the search in files that are opened without a server."""
FENCED = re.compile(r"(^```.*?^```$)", re.M | re.S)
GROUPS = {
    "agents": "Agents and turns",
    "messages": "Messages",
    "compiler": "Store and compiler",
    "requests": "Requests of any origin",
    "tools": "Tools, prompts and triggers",
    "models": "Models and providers",
}
MODULES = {
    **dict.fromkeys(("executor",), "agents"),
    **dict.fromkeys(("messages",), "messages"),
    **dict.fromkeys(("store", "compiler", "manager", "analysis"), "compiler"),
    **dict.fromkeys(("linting", "formats", "observation"), "requests"),
    **dict.fromkeys(("tools", "prompts", "triggers", "mcp", "instruction_files"), "tools"),
    **dict.fromkeys(("models", "providers", "worker"), "models"),
}


def on_config(config: Any) -> Any:
    config.nav = [
        {"Home": "index.md"},
        *({heading: [page.path for page in pages]} for heading, pages in list_sections().items()),
        {"API": [f"api/{name}.md" for name in (*GROUPS, "errors", "events", "testing")]},
        {"Project": [name for name in REPOSITORY_PAGES if (ROOT / name).exists()]},
    ]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the README as the first page, the other pages of the repository, and the pages of the API."""
    files.remove(files.get_file_from_path("README.md"))
    added = {"index.md": (ROOT / "README.md").read_text(encoding="utf-8")}
    added |= {name: (ROOT / name).read_text(encoding="utf-8") for name in REPOSITORY_PAGES if (ROOT / name).exists()}
    added["assets/site.css"] = (Path(__file__).parent / "site.css").read_text(encoding="utf-8")
    for path, text in {**added, **_make_api_pages()}.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Point links to where their pages are in the website; what is not in it becomes its name."""
    path = page.file.src_uri
    source = ROOT / path if path in REPOSITORY_PAGES else ROOT / "README.md" if path == "index.md" else DOCS / path

    def move(match: re.Match[str]) -> str:
        text, target, anchor = match[1], match[2], match[3] or ""
        if "://" in target or target.startswith("mailto:"):
            return match[0]
        file = (source.parent / target).resolve()
        if file == ROOT / "README.md" or file == DOCS / "README.md":
            found = "index.md"
        elif file.parent == ROOT and file.name in REPOSITORY_PAGES:
            found = file.name
        elif file.is_relative_to(DOCS) and file.is_file():
            found = file.relative_to(DOCS).as_posix()
        else:
            return text.removeprefix("[").removesuffix("]") if not text.startswith("!") else text
        if text == f"[{file.name}]" and (title := TITLE.search(file.read_text(encoding="utf-8"))):
            text = f"[{title[1]}]"
        up = "../" * path.count("/")
        return f"{text}({up}{found}{anchor})"

    parts = FENCED.split(markdown)
    return "".join(part if part.startswith("```") else LINK.sub(move, part) for part in parts)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    return output.replace(WORKER_SHIM, "../" * page.url.count("/") + "assets/iframe-worker.js")


def on_post_build(config: Any) -> None:
    """Write the texts for agents, and the pages as Markdown, which these texts link to."""
    site = Path(config.site_dir)
    shutil.copyfile(Path(__file__).parent / "vendor" / "iframe-worker.js", site / "assets" / "iframe-worker.js")
    missing = site / "404.html"
    missing.write_text(
        missing.read_text(encoding="utf-8").replace(WORKER_SHIM, "assets/iframe-worker.js"), encoding="utf-8"
    )
    for file in DOCS.rglob("*.md"):
        (site / file.relative_to(DOCS)).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, site / file.relative_to(DOCS))
    (site / "llms-full.txt").write_text(make_llms_full(), encoding="utf-8")


def _make_api_pages() -> dict[str, str]:
    """Return the pages of the API: each public name with its docstring, grouped by what it is for."""
    import contextc

    grouped: dict[str, list[str]] = {name: [] for name in GROUPS}
    for name in contextc.__all__:
        value = getattr(contextc, name)
        module = value.__module__.split(".")[1]
        if module in MODULES:  # the others have pages of their own
            grouped[MODULES[module]].append(f"{value.__module__}.{value.__qualname__}")
    pages = {
        f"api/{name}.md": "\n\n".join([f"# {title}", *(f"::: {each}" for each in grouped[name])])
        for name, title in GROUPS.items()
    }
    for name, title in (("errors", "Errors"), ("events", "Events"), ("testing", "Tests of agents")):
        options = "    options:\n      show_root_heading: false\n      show_root_toc_entry: false"
        pages[f"api/{name}.md"] = f"# {title}\n\n::: contextc.{name}\n{options}"
    return pages
