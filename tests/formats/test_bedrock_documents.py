"""Documents and other media in requests of Amazon Bedrock."""

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.formats.bedrock.codec import find_documents
from contextc.linting import lint
from contextc.messages import (
    Media,
    Message,
    Text,
    assistant,
    user,
)
from tests.formats.bedrock_samples import REPLY
from tests.formats.test_bedrock import BEDROCK, CLAUDE


def document(name: str | None = None, data: bytes = b"%PDF") -> Media:
    return Media(mime_type="application/pdf", data=data, name=name)


def names(wire: list[JSONObject]) -> list[str]:
    return [block["document"]["name"] for message in wire for block in message["content"] if "document" in block]


def test_a_document_keeps_its_name_whatever_comes_after_it() -> None:
    """Guarantee 9.2: stored messages are distinguished by their uid, segment by segment."""
    first, second = (Message(role="user", uid=uid, parts=(Text("See"), document())) for uid in ("u1", "u2"))
    alone, later = BEDROCK.encode([first]), BEDROCK.encode([second])
    assert names([*alone.messages]) != names([*later.messages])
    both = BEDROCK.join([alone, BEDROCK.encode([assistant("ok")]), later])
    assert names(both) == [*names([*alone.messages]), *names([*later.messages])]


@pytest.mark.parametrize("place", ["message", "result", "native"])
def test_documents_with_the_same_name_get_distinct_names_when_compiled_in_sequence(place: str) -> None:
    """Guarantee 9.2: each message is sealed alone; a fresh compiler gives the same names."""
    store = cc.open_store("memory:")
    spec = f"bedrock:{CLAUDE}"
    compiler = cc.MessageCompiler(store, spec)
    source: JSONObject = {"content": [{"text": "x"}]} if place == "native" else {"bytes": "JVBERg=="}
    shown: JSONObject = {"document": {"name": "Report", "format": "pdf", "source": source}}
    seen: list[list[JSONObject]] = []
    for number in range(4):
        content: list[JSONObject] = [{"text": f"{number}"}] if number in (1, 2) else [{"text": "See."}, shown]
        if place == "result" and number in (0, 3):
            call: JSONObject = {"toolUseId": f"a{number}", "name": "look", "input": {}}
            result: JSONObject = {"toolUseId": f"a{number}", "content": [{"text": "1"}, shown], "status": "success"}
            asked, told = BEDROCK.decode_request(
                [
                    {"role": "assistant", "content": [{"toolUse": call}]},
                    {"role": "user", "content": [{"toolResult": result}]},
                ]
            ).messages
            store.extend("demo", [user("Look."), asked, told])
        else:
            store.extend("demo", BEDROCK.decode_request([{"role": "user", "content": content}]).messages)
        compiled = compiler.compile("demo")
        seen.append(BEDROCK.without_cache_breakpoints(compiled.params["messages"]))
        with compiler.attempt(compiled) as attempt:
            attempt.commit({**REPLY, "output": {"message": {"role": "assistant", "content": [{"text": "ok"}]}}})
    found = [each["document"]["name"] for message in seen[-1] for each in find_documents(message["content"])]
    assert len(found) == len(set(found)) == 2
    assert all(name.startswith("Report ") for name in found)
    assert lint(seen[-1], format="bedrock") == []
    assert seen[-1][: len(seen[0])] == seen[0]
    store.append("demo", user("And?"))
    fresh = cc.MessageCompiler(store, spec).compile("demo").params["messages"]
    assert [each["document"]["name"] for message in fresh for each in find_documents(message["content"])] == found
