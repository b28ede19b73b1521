"""The parts of the package's metadata that depend on where the repository is: its README and its URLs.

A registry shows the README without the files beside it, so its links and pictures must be absolute there. A release
sets CONTEXTC_REPOSITORY_URL to the address of the repository. Without it the links stay as they are, and the package
has no URLs. A wheel that is built from a source distribution takes both from that.
"""

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

REPOSITORY = "CONTEXTC_REPOSITORY_URL"
PICTURES = (".png", ".svg", ".gif", ".jpg")
FENCED = re.compile(r"(^```.*?^```$)", re.M | re.S)
LINK = re.compile(r"\]\((?!\w+:|#)([^)\s]+)\)")


class ReadmeAndURLs(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        if "readme" in metadata:  # built from a source distribution
            metadata.setdefault("urls", {})
            return
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        repository = os.environ.get(REPOSITORY, "").rstrip("/")
        tag = f"v{metadata['version']}"
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": with_absolute_links(text, repository, tag) if repository else text,
        }
        metadata["urls"] = project_urls(repository, tag) if repository else {}


def with_absolute_links(text: str, repository: str, tag: str) -> str:
    """Return Markdown with links to the files of a tag. Code blocks stay as they are."""

    def absolute(match: re.Match[str]) -> str:
        kind = "raw" if match[1].endswith(PICTURES) else "blob"
        return f"]({repository}/{kind}/{tag}/{match[1]})"

    parts = FENCED.split(text)
    return "".join(each if each.startswith("```") else LINK.sub(absolute, each) for each in parts)


def project_urls(repository: str, tag: str) -> dict[str, str]:
    """Return the addresses that registries list beside a package."""
    return {
        "Homepage": repository,
        "Documentation": f"{repository}/blob/{tag}/docs/README.md",
        "Changelog": f"{repository}/blob/{tag}/CHANGELOG.md",
        "Issues": f"{repository}/issues",
        "Source": repository,
    }
