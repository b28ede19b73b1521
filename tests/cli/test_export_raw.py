"""`contextc export --request N --raw` writes a response as its bytes arrived."""

from pathlib import Path

import contextc as cc
from tests.cli.conftest import Run

REPLY = b'{"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"\\u001b[31m"}}]}\n'


def test_it_writes_the_bytes_or_says_why_there_are_none(run: Run, tmp_path: Path) -> None:
    """Guarantee 16.19."""
    address, file = f"sqlite:///{tmp_path}/chat.db", tmp_path / "reply.json"
    body = {"model": "gpt-5", "messages": [{"role": "user", "content": "hi"}]}
    with cc.open_store(address) as store:
        cc.observe(store, request=body, reply=REPLY, format="openai_chat", conversation="seen")
        cc.observe(store, request=body, reply={"choices": []}, format="openai_chat", conversation="none")
    at = ("--store", address)
    assert run("export", "seen", "--request", "1", "--raw", "-o", str(file), *at).returncode == 0
    assert file.read_bytes() == REPLY
    missing = run("export", "none", "--request", "1", "--raw", *at)
    assert (missing.returncode, "is not kept" in missing.stderr) == (2, True)
    assert run("export", "seen", "--raw", *at).returncode == 2
