"""The last check of a draft before it becomes a request."""

import subprocess
import sys

import pytest

CHECKED = """
import contextc as cc
from contextc.compiler.draft import verify_draft
from msgspec.structs import replace

with cc.open_store("memory:") as store:
    store.append("demo", cc.user("Hello."))
    draft = cc.MessageCompiler(store, cc.provider("openai:gpt-5.1", window=8000)).compile("demo").draft
verify_draft(draft)
for broken in (
    replace(draft, budget=replace(draft.budget, used=draft.budget.available + 1)),
    replace(draft, tail=(*draft.tail, *draft.tail)),
    replace(draft, kept=(*draft.kept, *draft.kept)),
):
    try:
        verify_draft(broken)
    except cc.errors.InternalError as error:
        print(error)
    else:
        print("sent")
"""


@pytest.mark.parametrize("options", [(), ("-O",)])
def test_a_broken_draft_is_refused_also_without_asserts(options: tuple[str, ...]) -> None:
    """`python -O` removes every `assert`: a request over its budget, or with a message twice, must not leave there."""
    command = [sys.executable, *options, "-c", CHECKED]
    result = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(result) == 3
    assert result[0].startswith("Draft: its messages must fit in ")
    assert all(line.startswith("Draft: each message must occur once") for line in result[1:])
