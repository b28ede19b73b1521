"""Run axe-core on a page and return the accessibility violations. Its package is installed once."""

from functools import lru_cache
from pathlib import Path
from typing import cast

from playwright.sync_api import Page, expect

from contextc._json import JSONObject
from tests.conftest import give_up
from tests.sdk_comparison.ai_sdk_process import Unavailable, find_node, installed

HERE = Path(__file__).parent
TOO_BAD = ("moderate", "serious", "critical")
RUN = """async (within) => {
  const fading = document.getAnimations().filter((each) => each instanceof CSSTransition);
  await Promise.allSettled(fading.map((each) => each.finished));
  return (await axe.run(within, { resultTypes: ["violations"] })).violations;
}"""


@lru_cache(maxsize=1)
def _source() -> str:
    try:
        return (installed(find_node(), HERE) / "node_modules" / "axe-core" / "axe.min.js").read_text()
    except Unavailable as reason:
        give_up(f"axe-core cannot be had: {reason}.")
        raise AssertionError from reason


def shut_out(page: Page, within: str = "body") -> list[str]:
    """What is moderate or worse: the rule, and where it is broken. What loads or fades is paler, so it is awaited."""
    expect(page.locator("[aria-busy=true]")).to_have_count(0)
    if not page.evaluate("'axe' in window"):
        page.evaluate(_source())
    found = cast(list[JSONObject], page.evaluate(RUN, within))
    return [
        f"{each['id']}: {node['target']} {node['html'][:160]} {node['failureSummary'][:300]}"
        for each in found
        if each["impact"] in TOO_BAD
        for node in cast(list[JSONObject], each["nodes"])
    ]
