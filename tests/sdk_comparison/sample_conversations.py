"""Handwritten conversations: one peculiarity of a format each."""

from collections.abc import Mapping

import contextc as cc
from contextc.formats.request_settings import RequestSettings, ToolChoice
from contextc.messages import Media, Reasoning, Text
from tests.sdk_comparison.request_pairs import LOOK, Conversation

PNG = b"\x89PNG\r\n\x1a\nand so on, and so on"
JPEG = b"\xff\xd8\xff and so on"
PDF = b"%PDF-1.7 and so on"
READ = cc.Tool(name="files.read größe", parameters={"type": "object", "properties": {}})
STRICT = cc.Tool(
    name="count",
    parameters={"type": "object", "properties": {}, "required": [], "additionalProperties": False},
    strict=True,
)
HI, MORE = cc.user("Hi."), cc.user("And then?")


def call(id: str = "call00001", at: str = "x") -> cc.ToolCall:
    return cc.tool_call(id, "look", {"at": at})


def returned(content: object, id: str = "call00001", *, error: bool = False) -> cc.Message:
    return cc.tool_result(id, "look", content, is_error=error)


def conversation_of(*messages: cc.Message) -> Conversation:
    return Conversation(messages=messages)


def conversation_with_result(content: object, *, error: bool = False) -> Conversation:
    """One call, and what it returned."""
    return conversation_of(HI, cc.assistant([call()]), returned(content, error=error))


def thought(*parts: Reasoning) -> Conversation:
    """A reply that was thought about, and its call answered."""
    return conversation_of(HI, cc.assistant([*parts, Text("I look."), call()]), returned("r"))


def shown(media: Media) -> Conversation:
    return conversation_of(cc.user([Text("See:"), media]))


def asked(settings: RequestSettings) -> Conversation:
    return Conversation(messages=(HI,), settings=settings)


CASES: Mapping[str, Conversation] = {
    "one message": conversation_of(HI),
    "no prompt, no tools": Conversation(messages=(HI,), prompt=None, tools=()),
    "three turns": conversation_of(HI, cc.assistant("Hello."), MORE, cc.assistant("That was all."), MORE),
    "letters of all kinds": conversation_of(
        cc.user('日本 🎉 \u2028 "\\\n\t <b>&amp;'), cc.assistant("größer\u0000"), MORE
    ),
    "parallel calls": conversation_of(
        HI,
        cc.assistant([Text("I look."), call("call0000a"), call("call0000b", "y")]),
        returned("A", "call0000a"),
        returned("B", "call0000b"),
        cc.assistant("Done."),
        MORE,
    ),
    "results in another order": conversation_of(
        HI,
        cc.assistant([call("call0000a"), call("call0000b", "y")]),
        returned("B", "call0000b"),
        returned("A", "call0000a"),
    ),
    "words after results": conversation_of(
        HI, cc.assistant([call()]), returned("r"), MORE, cc.assistant("Done."), MORE
    ),
    "words between calls": conversation_of(
        HI,
        cc.assistant([call("call0000a"), Text("And here."), call("call0000b", "y")]),
        returned("A", "call0000a"),
        returned("B", "call0000b"),
    ),
    "a call that was cut off": conversation_of(HI, cc.assistant([call()]), MORE),
    "steps in a row": conversation_of(
        HI,
        cc.assistant([call("call0000a")]),
        returned("A", "call0000a"),
        cc.assistant([call("call0000b")]),
        returned("B", "call0000b"),
        cc.assistant("Done."),
        MORE,
    ),
    "an error as a result": conversation_with_result("No such file.", error=True),
    "an empty result": conversation_with_result(""),
    "an empty error": conversation_with_result("", error=True),
    "a blank result": conversation_with_result(" "),
    "an object as a result": conversation_with_result({"n": 1, "said": ["é", None]}),
    "a result of several texts": conversation_with_result([Text("t"), Text("u")]),
    "a result of one text": conversation_with_result([Text("t")]),
    "an error of several texts": conversation_with_result([Text("t"), Text("u")], error=True),
    "a result with a picture": conversation_with_result([Text("t"), Media(mime_type="image/png", data=PNG)]),
    "a result that is a picture": conversation_with_result([Media(mime_type="image/png", data=PNG)]),
    "a result with a link to a picture": conversation_with_result(
        [Media(mime_type="image/jpeg", url="https://example.com/a.jpg")]
    ),
    "a result with a document": conversation_with_result(
        [Text("t"), Media(mime_type="application/pdf", data=PDF, name="a.pdf")]
    ),
    "an error with a picture": conversation_with_result(
        [Text("t"), Media(mime_type="image/png", data=PNG)], error=True
    ),
    "a picture": shown(Media(mime_type="image/png", data=PNG)),
    "a picture of a rare kind": shown(Media(mime_type="image/tiff", data=b"II*\0")),
    "a link to a picture": shown(Media(mime_type="image/jpeg", url="https://example.com/a.jpg")),
    "a document": shown(Media(mime_type="application/pdf", data=PDF, name="a.pdf")),
    "a document without a name": shown(Media(mime_type="application/pdf", data=PDF)),
    "nothing but a document": conversation_of(cc.user([Media(mime_type="application/pdf", data=PDF, name="a.pdf")])),
    "a link to a document": shown(Media(mime_type="application/pdf", url="https://example.com/a.pdf")),
    "a text file": shown(Media(mime_type="text/plain", data=b"plain", name="a.txt")),
    "a sound": shown(Media(mime_type="audio/wav", data=b"RIFF")),
    "a picture called a film": shown(Media(mime_type="video/mp4", data=JPEG)),
    "a picture that was drawn": conversation_of(
        HI, cc.assistant([Text("Here:"), Media(mime_type="image/png", data=PNG)]), MORE
    ),
    "a file that a provider holds": shown(Media(mime_type="application/pdf", file_id="file_1", provider="anthropic")),
    "a block of one provider": conversation_of(
        cc.user([Text("a"), cc.messages.ProviderBlock(provider="anthropic", data={"type": "odd"})])
    ),
    "thinking that was signed": thought(Reasoning(text="Hm.", provider="anthropic", signature="c2lnbmVk")),
    "thinking that was redacted": thought(Reasoning(data="cmVkYWN0ZWQ=", provider="anthropic")),
    "reasoning that was encrypted": thought(
        Reasoning(text="Hm.", data="gAAAAABlbmNyeXB0ZWQ=", id="rs_1", provider="openai"),
        Reasoning(data="gAAAAABtb3Jl", id="rs_2", provider="openai"),
    ),
    "reasoning without an id": conversation_of(
        HI, cc.assistant([Reasoning(text="Hm.", data="ZW5jcnlwdGVk", provider="openai"), call()]), returned("r")
    ),
    "reasoning that led nowhere": conversation_of(
        HI, cc.assistant([Reasoning(text="Hm.", data="ZW5jcnlwdGVk", id="rs_1", provider="openai")]), MORE
    ),
    "reasoning that nobody signed": thought(Reasoning(text="Hm.", provider="google")),
    "reasoning in Bedrock": thought(
        Reasoning(text="Hm.", provider="bedrock", signature="c2lnbmVk"),
        Reasoning(data="cmVkYWN0ZWQ=", provider="bedrock"),
    ),
    "a signed thought": thought(Reasoning(text="Hm.", provider="google", signature="c2lnbmVk")),
    "a signed call": conversation_of(
        HI,
        cc.assistant(
            [
                cc.ToolCall(
                    id="call0000a", name="look", arguments={"at": "x"}, extra={"google": {"thoughtSignature": "c2ln"}}
                ),
                call("call0000b", "y"),
            ]
        ),
        returned("A", "call0000a"),
        returned("B", "call0000b"),
    ),
    "a rule after the user": conversation_of(HI, cc.system("Be kind."), cc.assistant("Hello."), MORE),
    "a rule after the assistant": conversation_of(HI, cc.assistant("Hello."), cc.system("Be kind."), MORE),
    "a rule after results": conversation_of(HI, cc.assistant([call()]), returned("r"), cc.system("Be kind.")),
    "two rules": conversation_of(HI, cc.system("Be kind."), cc.system("Be quick."), cc.assistant("Hello."), MORE),
    "a rule before everything": conversation_of(cc.system("Be kind."), HI),
    "a rule of two texts": conversation_of(
        HI, cc.system([Text("Be kind."), Text("Be quick.")]), cc.assistant("Hello."), MORE
    ),
    "a rule without a prompt": Conversation(
        messages=(HI, cc.assistant("Hello."), MORE, cc.system("Be kind.")), prompt=None
    ),
    "several texts": conversation_of(cc.user([Text("a"), Text("b")]), cc.assistant([Text("c"), Text("d")]), MORE),
    "one after another": conversation_of(HI, MORE, cc.assistant("One."), cc.assistant("Two."), MORE),
    "the assistant begins": conversation_of(cc.assistant("Welcome."), HI),
    "the assistant ends": conversation_of(HI, cc.assistant("\nOnce upon  ")),
    "blank texts": conversation_of(
        HI, cc.user(" "), cc.assistant("\n"), cc.user([Text("a"), Text("")]), cc.assistant(["", "b"])
    ),
    "arguments as they were written": conversation_of(
        HI, cc.assistant([cc.tool_call("call00001", "look", ' { "at": "x"}')]), returned("r")
    ),
    "arguments that are broken": conversation_of(
        HI, cc.assistant([cc.tool_call("call00001", "look", '{ "at')]), returned("r")
    ),
    "an id and a name in other letters": Conversation(
        messages=(HI, cc.assistant([cc.tool_call("a.b:c", READ.name, {})]), cc.tool_result("a.b:c", READ.name, "r")),
        tools=(LOOK, READ),
    ),
    "a call without an id": conversation_of(HI, cc.assistant([call("")]), returned("r", "")),
    "what was said beyond our types": conversation_of(
        cc.user([Text("Hi.", extra={"anthropic": {"cache_control": {"type": "ephemeral"}}})])
    ),
    "a strict tool": Conversation(messages=(HI,), tools=(STRICT,)),
    "one tool must be called": asked(RequestSettings(max_output_tokens=100, tool_choice=ToolChoice("named", "look"))),
    "a tool must be called": asked(RequestSettings(max_output_tokens=100, tool_choice=ToolChoice("required"))),
    "no tool may be called": asked(RequestSettings(max_output_tokens=100, tool_choice=ToolChoice("none"))),
    "words that end it": asked(RequestSettings(max_output_tokens=100, stop=["END", "STOP"])),
}
