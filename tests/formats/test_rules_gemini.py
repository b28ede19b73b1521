"""Rules specific to Gemini: two spellings, calls without ids, signatures, and shapes that it accepts."""

import base64

import pytest

import contextc as cc
from contextc._json import JSON, JSONObject
from contextc.linting import fix, lint

ASK: JSONObject = {"role": "user", "parts": [{"text": "What is in a.py?"}]}
SIGNATURE = base64.b64encode(bytes([0x12, 100, *range(100)])).decode()


def codes(body: JSON) -> list[str]:
    return [violation.code for violation in lint(body, format="gemini")]


def call(name: str = "look", call_id: str | None = None, **beside: JSON) -> JSONObject:
    named = {"id": call_id} if call_id else {}
    return {"functionCall": {**named, "name": name, "args": {"path": "a.py"}}, **beside}


def result(name: str = "look", call_id: str | None = None, said: JSON = "print(1)") -> JSONObject:
    named = {"id": call_id} if call_id else {}
    return {"functionResponse": {**named, "name": name, "response": {"output": said}}}


def model(*parts: JSONObject) -> JSONObject:
    return {"role": "model", "parts": list(parts)}


def user(*parts: JSONObject) -> JSONObject:
    return {"role": "user", "parts": list(parts)}


@pytest.mark.parametrize(
    "contents",
    [
        pytest.param([{"parts": [{"text": "hi"}]}], id="no role"),
        pytest.param([{"role": None, "parts": [{"text": "hi", "thought": None}]}], id="nulls"),
        pytest.param([{"role": "user", "parts": {"text": "hi"}}], id="one part without brackets"),
        pytest.param([user({"text": ""})], id="empty text"),
        pytest.param([model({"text": "Hello!"}), ASK], id="begins with the model"),
        pytest.param([ASK, model({"text": "Hello!"})], id="ends with the model"),
        pytest.param([ASK, ASK], id="the user twice"),
        pytest.param([ASK, model(call()), {"role": "function", "parts": [result()]}], id="the role of former days"),
        pytest.param([ASK, model(call()), {"role": "tool", "parts": [result()]}], id="the role of Google's examples"),
        pytest.param([ASK, model(call()), user({"text": "Here:"}, result())], id="text beside a result"),
        pytest.param([ASK, model(call()), user(result()), ASK], id="text after a result"),
        pytest.param([user({"audioTranscription": {"text": "hi"}})], id="a field of the SDK alone"),
        pytest.param(
            [
                ASK,
                model({"function_call": {"name": "look", "args": None}, "thought_signature": None}),
                user({"function_response": {"name": "look", "response": {}}}),
            ],
            id="snake case",
        ),
    ],
)
def test_what_google_takes_is_not_flagged(contents: list[JSONObject]) -> None:
    """Guarantee 10.6: a checker that cries at sound requests is turned off."""
    assert codes(contents) == []
    assert codes({"contents": contents}) == []


def test_a_single_content_needs_no_list() -> None:
    """The API reads one object as a list of one; a checker must not refuse what it takes."""
    assert codes({"contents": ASK, "tools": {"function_declarations": {"name": "look"}}}) == []


@pytest.mark.parametrize(
    ("calls", "results"),
    [
        pytest.param([call("a"), call("b")], [result("b"), result("a")], id="by name"),
        pytest.param([call("a"), call("a")], [result("a"), result("a")], id="by order"),
        pytest.param([call("a", "1"), call("a", "2")], [result("a", "2"), result("a", "1")], id="by id"),
        pytest.param([call("a", "1"), call("a", "1")], [result("a", "1"), result("a", "1")], id="an id used twice"),
        pytest.param([call("a"), call("b")], [result("b", "2"), result("a", "1")], id="ids on results alone"),
        pytest.param([call("a", "1"), call("b", "2")], [result("b"), result("a")], id="ids on calls alone"),
    ],
)
def test_results_are_matched_by_id_else_by_name_and_order(calls: list[JSONObject], results: list[JSONObject]) -> None:
    """Guarantee 5.1, where the provider gives ids: Google need not, and then a name is all there is."""
    assert codes([ASK, model(*calls), user(*results)]) == []


@pytest.mark.parametrize(
    ("contents", "expected"),
    [
        pytest.param([ASK, model(call("a"), call("b")), user(result("a"))], ["GEM008"], id="one missing (bug 1)"),
        pytest.param([ASK, model(call()), user(result(), result())], ["GEM010"], id="doubled"),
        pytest.param([ASK, model(call("a")), user(result("b"))], ["GEM008", "GEM009"], id="another's"),
        pytest.param([ASK, model(call("a", "1")), user(result("a", "2"))], ["GEM008", "GEM009"], id="another id"),
        pytest.param([ASK, model(call()), ASK, user(result())], ["GEM008", "GEM009"], id="text between (bug 13)"),
        pytest.param([model(call()), user(result())], ["GEM007"], id="cut before its call (bug 6)"),
        pytest.param([user(result()), ASK], ["GEM009"], id="cut after its call (bug 1)"),
        pytest.param([ASK, model(call())], ["GEM008"], id="dangling (bug 8)"),
    ],
)
def test_broken_pairs_are_reported_and_fixed(contents: list[JSONObject], expected: list[str]) -> None:
    """Each of these is a 400 today."""
    assert codes(contents) == expected
    fixed, _ = fix(contents, format="gemini")
    assert codes(fixed) == []
    assert "What is in a.py?" in str(fixed) or "What is in a.py?" not in str(contents)


def test_two_replies_in_a_row_are_left_as_they_are() -> None:
    """Google joins neighbours of one role itself, so a reply stored in pieces needs no repair."""
    for contents in (
        [ASK, model({"text": "Hm."}), model(call()), user(result())],
        [ASK, model(call("a"), call("b")), user(result("a")), user(result("b"))],
    ):
        assert fix(contents, format="gemini") == (contents, [])


@pytest.mark.parametrize(
    "signature",
    [
        "",
        "c2hvcnQ=",
        SIGNATURE,
        SIGNATURE.rstrip("="),
        SIGNATURE.replace("+", "-").replace("/", "_"),
        "skip_thought_signature_validator",
        "context_engineering_is_the_way_to_go",
        base64.b64encode(b"context_engineering_is_the_way_to_go").decode(),
    ],
)
def test_signatures_of_google_and_its_placeholders_are_accepted(signature: str) -> None:
    """The sentinels are taken as they are, and as bytes in base64."""
    assert codes([ASK, model(call(thoughtSignature=signature)), user(result())]) == []


@pytest.mark.parametrize("damaged", [SIGNATURE[:-8], SIGNATURE[::-1], f"!{SIGNATURE}", "A" * 100, "sig_💥"])
@pytest.mark.parametrize("name", ["thoughtSignature", "thought_signature"])
def test_a_damaged_signature_is_replaced_by_the_placeholder(damaged: str, name: str) -> None:
    """FIELD-BUG 16: a call must keep a signature Google takes; a text does without."""
    contents = [ASK, model({"text": "Hm.", name: damaged}, call(**{name: damaged})), user(result())]
    assert codes(contents) == ["GEM011", "GEM011"]
    fixed, _ = fix(contents, format="gemini")
    assert fixed == [
        ASK,
        model({"text": "Hm."}, call(thoughtSignature="skip_thought_signature_validator")),
        user(result()),
    ]


def test_only_calls_of_this_turn_must_be_signed_and_only_where_the_model_is_known_to_ask() -> None:
    """FIELD-BUG 15, litellm#16893: a lost signature is a 400 from Gemini 3 on, and nothing before it."""
    signed = call(thoughtSignature=SIGNATURE)
    contents = [ASK, model(call()), user(result()), ASK, model(signed), user(result()), model(call()), user(result())]
    asked = {"generationConfig": {"thinkingConfig": {"thinkingLevel": "LOW"}}, "contents": contents}
    assert codes(contents) == []
    assert [(each.code, each.path) for each in lint(asked, format="gemini")] == [("GEM012", "contents[6].parts[0]")]


@pytest.mark.parametrize(
    ("part", "fixed"),
    [
        ({"type": "text", "text": "hi"}, {"text": "hi"}),
        ("hi", {"text": "hi"}),
        ({"text": "hi", "mood": "good"}, {"text": '{"text":"hi","mood":"good"}'}),
        ({"text": 1}, {"text": '{"text":1}'}),
        ({"inlineData": {"data": "AAAA"}}, {"text": '{"inlineData":{"data":"AAAA"}}'}),
    ],
)
def test_a_part_with_an_invalid_shape_keeps_its_text(part: JSON, fixed: JSONObject) -> None:
    """Guarantee 10.6: `fix` loses no text."""
    assert codes([user(part)]) == ["GEM001"]
    assert fix([user(part)], format="gemini")[0] == [user(fixed)]


def test_arguments_and_responses_as_text_become_objects() -> None:
    """Arguments that were cut off or left out must not poison a conversation."""
    first = {"functionCall": {"name": "look", "args": '{"path": "a.py"}'}}
    second = {"functionCall": {"name": "find", "args": '{"pa'}}
    answers = [{"functionResponse": {"name": name, "response": "1"}} for name in ("look", "find")]
    contents = [ASK, model(first, second), user(*answers)]
    assert codes(contents) == ["GEM001"] * 4
    fixed, _ = fix(contents, format="gemini")
    assert [part["functionCall"]["args"] for part in fixed[1]["parts"]] == [
        {"path": "a.py"},
        {"malformed_arguments": '{"pa'},
    ]
    assert [part["functionResponse"]["response"] for part in fixed[2]["parts"]] == [{"output": "1"}, {"output": "1"}]


def test_a_part_with_two_kinds_of_content_is_split_before_pairing() -> None:
    """The call in such a part keeps its result."""
    contents = [ASK, model({"text": "Let me look.", **call()}), user(result())]
    assert codes(contents) == ["GEM004"]
    assert fix(contents, format="gemini")[0] == [ASK, model({"text": "Let me look."}, call()), user(result())]


@pytest.mark.parametrize(
    "system",
    [
        "Be brief.",
        ["Be brief."],
        {"text": "Be brief."},
        {"parts": ["Be brief."]},
        {"parts": [{"type": "text", "text": "Be brief."}]},
    ],
)
def test_a_system_prompt_in_the_shape_of_the_sdk_is_one_again(system: JSON) -> None:
    """Google's SDK takes a text, its API does not."""
    body = {"systemInstruction": system, "contents": [ASK]}
    assert codes(body) == ["GEM001"]
    fixed, _ = fix(body, format="gemini")
    assert fixed["systemInstruction"]["parts"] == [{"text": "Be brief."}]


def test_contents_in_the_shape_of_the_sdk_are_contents_again() -> None:
    """Google's SDK takes a text, and parts without a content around them."""
    for contents in ("hi", ["hi"], [{"text": "hi"}], [[{"text": "hi"}]], [{"role": "user", "content": "hi"}]):
        assert codes({"contents": contents}) in (["GEM001"], ["GEM001", "GEM003"])
        assert fix({"contents": contents}, format="gemini")[0] == {"contents": [user({"text": "hi"})]}


def test_media_in_results_is_read_too() -> None:
    """A picture that a tool returned breaks a request as well as one from the user."""
    broken = {"inlineData": {"mimeType": "image/png", "data": "%"}}
    answer = {"functionResponse": {"name": "look", "response": {"output": "1"}, "parts": [broken]}}
    contents = [ASK, model(call()), user(answer, broken)]
    assert codes(contents) == ["GEM013", "GEM013"]
    fixed, _ = fix(contents, format="gemini")
    assert codes(fixed) == []
    assert "%" not in str(fixed)


def test_allowed_functions_may_be_in_a_cache() -> None:
    """With `cachedContent` the functions are not in the request."""
    choice = {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["look"]}}
    assert codes({"contents": [ASK], "toolConfig": choice}) == ["GEM016"]
    assert codes({"contents": [ASK], "toolConfig": choice, "cachedContent": "cachedContents/1"}) == []


def test_a_renamed_function_stays_allowed() -> None:
    """A name occurs in three places, and they agree afterwards."""
    choice = {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["read file", "find"]}}
    tools = [{"functionDeclarations": [{"name": "read file"}]}]
    fixed, _ = fix({"contents": [ASK], "tools": tools, "toolConfig": choice}, format="gemini")
    assert fixed["tools"] == [{"functionDeclarations": [{"name": "read_x20_file"}]}]
    assert fixed["toolConfig"]["functionCallingConfig"]["allowedFunctionNames"] == ["read_x20_file"]


def test_findings_name_the_position_as_google_does() -> None:
    """Guarantee 10.6: each violation with its place, and the provider's own error."""
    found = lint([ASK, model({"functionCall": {"args": {}}})], format="gemini")
    assert [(each.path, each.message, each.error) for each in found] == [
        (
            "[1].parts[0]",
            "`name` is missing.",
            "* GenerateContentRequest.contents[1].parts[0].function_call.name: this field is required.",
        )
    ]


@pytest.mark.parametrize("role", ["user", "function", "tool"])
def test_a_call_gets_the_role_model_in_any_content(role: str) -> None:
    """Google takes `function` and `tool` as roles of results, and refuses a call there."""
    wanted: JSONObject = {"functionCall": {"id": "a", "name": "look", "args": {}}}
    answer: JSONObject = {"functionResponse": {"id": "a", "name": "look", "response": {"output": "1"}}}
    body: JSONObject = {
        "contents": [
            {"role": "user", "parts": [{"text": "hi"}]},
            {"role": role, "parts": [{"text": "Let me see."}, wanted]},
            {"role": "user", "parts": [answer]},
        ]
    }
    assert {each.code for each in cc.lint(body, format="gemini")} == {"GEM006"}

    fixed, _ = cc.fix(body, format="gemini")

    assert cc.lint(fixed, format="gemini") == []
    assert [content["role"] for content in fixed["contents"]] == ["user", "model", "user"]
    assert cc.lint(dict(cc.convert(body, source="gemini", target="gemini")), format="gemini") == []
