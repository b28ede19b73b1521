"""Every difference between the AI SDK's bodies and ours, with its reason.

The SDK's body, with the differences of its format written our way, is our body: exactly, and for every conversation
that both can express. So a difference that is not listed here fails a test, and so does one that is listed and no
longer there. docs/sdk-comparison.md is made of this table.
"""

from collections.abc import Iterable, Sequence
from copy import deepcopy
from typing import NamedTuple

from contextc._json import JSONObject
from tests.sdk_comparison.rewrites import anthropic, bedrock, gemini, identifiers, mistral, openai
from tests.sdk_comparison.rewrites.bodies import Rewrite, RewriteContext


class Difference(NamedTuple):
    """What we write, what the SDK writes, and why we do; `example` names the case that shows it."""

    name: str
    formats: tuple[str, ...]
    ours: str
    theirs: str
    reason: str
    rewrite: Rewrite
    example: str


class Compared(NamedTuple):
    """The SDK's body in our form, and the names of the differences found on the way."""

    body: JSONObject
    met: list[str]


def apply_known_differences(
    theirs: JSONObject, ours: JSONObject, context: RewriteContext, known: Iterable[Difference]
) -> Compared:
    """The SDK's body with what is known to differ written our way, as far as it does differ."""
    body, met = deepcopy(theirs), list[str]()
    for difference in known:
        if body == ours:
            break
        if context.form.name in difference.formats:
            before = deepcopy(body)
            difference.rewrite(body, context)
            met += [difference.name] if body != before else []
    return Compared(body, met)


OPENAI = ("openai_chat", "openai_responses")

DIFFERENCES: Sequence[Difference] = (
    Difference(
        "the name of a document in a result",
        ("anthropic",),
        "the `title` of the document, as outside of results",
        "left out",
        "the model can speak of it by its name",
        anthropic.with_result_titles,
        "a result with a document",
    ),
    Difference(
        "system messages before all others",
        ("anthropic",),
        "text of the user in `<system-reminder>`",
        "added to the prompt",
        "a prompt that changes with the messages is a new prefix",
        anthropic.first_rules_in_their_place,
        "a rule before everything",
    ),
    Difference(
        "a system message in a place of its own",
        ("anthropic",),
        "text of the user in `<system-reminder>`, where none may stand",
        "`role: system` wherever it stands",
        "the API takes one only after the user and before the assistant",
        anthropic.tag_displaced,
        "a rule after the assistant",
    ),
    Difference(
        "blank text",
        ("anthropic",),
        "left out",
        "sent",
        "the API refuses it: “text content blocks must contain non-whitespace text”",
        anthropic.without_blanks,
        "blank texts",
    ),
    Difference(
        "neighbouring system messages",
        ("anthropic",),
        "one message",
        "a message each",
        "the second would not follow the user's, as the API demands",
        anthropic.rules_as_one,
        "two rules",
    ),
    Difference(
        "white space at the end",
        ("anthropic",),
        "cut off where the assistant's words are last",
        "cut off there, and before those words too",
        "the API refuses it at the end alone",
        anthropic.space_before_the_last_words,
        "the assistant ends",
    ),
    Difference(
        "who begins",
        ("anthropic",),
        "a line before the assistant's first message says that it begins",
        "begins with the assistant",
        "the API wants the user first",
        anthropic.opened,
        "the assistant begins",
    ),
    Difference(
        "the length of the answer",
        ("openai_chat",),
        "`max_completion_tokens`",
        "`max_tokens` for models that do not reason",
        "the older name is deprecated, and models that reason refuse it",
        openai.length_by_its_new_name,
        "one message",
    ),
    Difference(
        "errors",
        OPENAI,
        "the text of the result",
        '`{"error": text}`',
        "the API has no flag for it; the text goes to the model as the tool wrote it, and a note says so",
        openai.errors_as_plain_text,
        "an error as a result",
    ),
    Difference(
        "a result of several texts",
        ("openai_chat",),
        "a list of texts",
        "the list as one text of JSON",
        "the API takes a list of texts, so the model need not read JSON",
        openai.lists_as_lists,
        "a result of several texts",
    ),
    Difference(
        "a reply that says nothing",
        ("openai_chat",),
        "left out",
        "an empty message",
        "what is left where reasoning cannot be sent; it tells the model nothing",
        openai.without_silent_replies,
        "reasoning that led nowhere",
    ),
    Difference(
        "what others have thought, at Mistral",
        ("mistral",),
        "left out",
        "sent as thinking of the model",
        "reasoning goes back to its own provider alone",
        mistral.without_thoughts,
        "thinking that was signed",
    ),
    Difference(
        "a reply that says nothing, at Mistral",
        ("mistral",),
        "left out",
        "an empty message",
        "what is left where reasoning cannot be sent; Mistral refuses such a message",
        mistral.without_silent_replies,
        "reasoning that led nowhere",
    ),
    Difference(
        "a result of texts, at Mistral",
        ("mistral",),
        "the text, or a list of texts",
        "the list as one text of JSON",
        "Mistral takes a list of texts, so the model need not read JSON",
        mistral.lists_as_lists,
        "a result of several texts",
    ),
    Difference(
        "a system message after a reply or a result",
        ("mistral",),
        "text of the user in `<system-reminder>`",
        "`role: system`",
        "Mistral's own validator refuses it there",
        mistral.tag_displaced,
        "a rule after the assistant",
    ),
    Difference(
        "who begins, at Mistral",
        ("mistral",),
        "a line before the assistant's first message says that it begins",
        "begins with the assistant",
        "the templates of its models begin with the user",
        mistral.opened,
        "the assistant begins",
    ),
    Difference(
        "the name of a document, at Mistral",
        ("mistral",),
        "`document_name`",
        "left out",
        "the model can speak of it by its name",
        mistral.with_names,
        "a document",
    ),
    Difference(
        "a tool must be called",
        ("mistral",),
        "`required`",
        "`any`",
        "both are taken; `required` is the newer name, and the one others have",
        mistral.required_by_its_new_name,
        "a tool must be called",
    ),
    Difference(
        "a reply of several texts",
        ("openai_chat", "mistral"),
        "a list of texts",
        "one text, without a mark between them",
        "two paragraphs of a model would run into each other",
        openai.texts_apart,
        "several texts",
    ),
    Difference(
        "the arguments of a call",
        (*OPENAI, "mistral"),
        "the text that the model wrote, even if it is no JSON",
        "rewritten from the parsed value",
        "a changed letter is a changed prefix, and the cache is lost",
        openai.arguments_as_written,
        "arguments as they were written",
    ),
    Difference(
        "a document without a name",
        OPENAI,
        "none in Chat; `document.pdf` in Responses, which demands one",
        "`part-1.pdf`, by its place in the message",
        "a name that depends on the place changes when a part before it does",
        openai.files_without_made_up_names,
        "a document without a name",
    ),
    Difference(
        "the system prompt",
        ("openai_responses",),
        "`instructions`",
        "the first item, from the developer",
        "both are taken; in `instructions` it can be told from the messages, also where the provider holds those",
        openai.prompt_as_instructions,
        "one message",
    ),
    Difference(
        "blank text in items",
        ("openai_responses",),
        "left out",
        "sent",
        "it tells the model nothing",
        openai.without_blanks,
        "blank texts",
    ),
    Difference(
        "one text",
        ("openai_responses", "mistral"),
        "a string",
        "a list of one block",
        "the API takes both, and they mean the same",
        openai.one_text_as_a_string,
        "one message",
    ),
    Difference(
        "the detail of a picture",
        ("openai_responses",),
        "`auto`",
        "not said",
        "OpenAI's own types demand it; `auto` is what is assumed",
        openai.with_detail,
        "a picture",
    ),
    Difference(
        "reasoning without an id",
        ("openai_responses",),
        "an id made from its content",
        "none",
        "OpenAI's own types demand one",
        openai.name_reasoning,
        "reasoning without an id",
    ),
    Difference(
        "reasoning that led to words",
        ("openai_responses",),
        "left out, if the message it led to has no id",
        "sent",
        "the API misses that message: “provided without its required following item”",
        openai.without_idle_reasoning,
        "reasoning that was encrypted",
    ),
    Difference(
        "text files",
        ("gemini",),
        "text with the file's name",
        "bytes without a name",
        "the model can speak of it by its name, and every model reads text",
        gemini.text_files_as_text,
        "a text file",
    ),
    Difference(
        "the place of a result",
        ("gemini",),
        "`output`, or `error`",
        "`content`, or `error`, and the tool's name again",
        "`output` and `error` are the names that Google's reference gives",
        gemini.answers_as_output,
        "an empty result",
    ),
    Difference(
        "strict tools",
        ("gemini",),
        "as any other",
        "the mode `VALIDATED`, for all tools of the request",
        "Google has no such word for one tool; the mode is the caller's to set",
        gemini.strict_as_any_other,
        "a strict tool",
    ),
    Difference(
        "a tool without a description",
        ("gemini",),
        "none",
        "an empty one",
        "nothing is said where nothing was",
        gemini.without_empty_descriptions,
        "an id and a name in other letters",
    ),
    Difference(
        "several texts of one result",
        ("gemini",),
        "one after the other",
        "a line each; “Tool executed successfully.” where there are none",
        "no word is put into a tool's mouth",
        gemini.texts_without_breaks,
        "a result of several texts",
    ),
    Difference(
        "the stand-in for a signature",
        ("gemini",),
        "on the first call of a step",
        "on every call that has none",
        "Google signs the first one alone",
        gemini.one_stand_in,
        "parallel calls",
    ),
    Difference(
        "what others have thought",
        ("gemini",),
        "left out",
        "sent as a thought of the model",
        "reasoning goes back to its own provider alone",
        gemini.without_foreign_thoughts,
        "thinking that was signed",
    ),
    Difference(
        "blank parts",
        ("gemini",),
        "left out",
        "sent",
        "it tells the model nothing; a content of nothing else is refused",
        gemini.without_blanks,
        "blank texts",
    ),
    Difference(
        "who opens a conversation",
        ("gemini",),
        "a line before the model's first content says that it begins",
        "begins with the model",
        "Google wants the user first",
        gemini.opened,
        "the assistant begins",
    ),
    Difference(
        "neighbours of one role",
        ("gemini",),
        "one content",
        "a content each",
        "roles alternate; only the results of a step stand apart",
        gemini.neighbours_as_one,
        "one after another",
    ),
    Difference(
        "the stop sequence in the answer",
        ("bedrock",),
        "not asked for",
        "asked for in `additionalModelResponseFieldPaths`",
        "nothing of ours reads it",
        bedrock.without_the_stop_sequence,
        "one message",
    ),
    Difference(
        "no prompt",
        ("bedrock",),
        "no `system`",
        "an empty list",
        "both are taken",
        bedrock.without_an_empty_prompt,
        "no prompt, no tools",
    ),
    Difference(
        "blank text, at Bedrock",
        ("bedrock",),
        "left out, and neighbours of one role are one message",
        "sent, unless it is the assistant's; then two messages of the user's follow one another",
        "Bedrock refuses it: “The text field in the ContentBlock object … is blank.”; roles alternate",
        bedrock.without_blanks,
        "blank texts",
    ),
    Difference(
        "errors, at Bedrock",
        ("bedrock",),
        "`status: error`",
        "not said",
        "Bedrock has a flag for it",
        bedrock.with_errors,
        "an error as a result",
    ),
    Difference(
        "an error without words",
        ("bedrock",),
        "a line says that it failed",
        "an empty text",
        "Bedrock refuses an empty result whose status is error",
        bedrock.with_words_for_errors,
        "an empty error",
    ),
    Difference(
        "a document that stands alone",
        ("bedrock",),
        "a line of text beside it",
        "alone",
        "Bedrock wants a text in the same message",
        bedrock.with_a_line_beside,
        "nothing but a document",
    ),
    Difference(
        "the names of documents",
        ("bedrock",),
        "their own with a hash, so that no two are the same",
        "their own, or a number",
        "Bedrock refuses a name that occurs twice, and a number would change with what stands before",
        bedrock.with_names_of_their_own,
        "a document",
    ),
    Difference(
        "white space at the end, at Bedrock",
        ("bedrock",),
        "cut off where the assistant's words are last",
        "cut off there, and before those words too",
        "it is refused at the end alone",
        bedrock.space_before_the_last_words,
        "the assistant ends",
    ),
    Difference(
        "who begins, at Bedrock",
        ("bedrock",),
        "a line before the assistant's first message says that it begins",
        "begins with the assistant",
        "Bedrock wants the user first",
        bedrock.opened,
        "the assistant begins",
    ),
    Difference(
        "strict tools, at Bedrock",
        ("bedrock",),
        "as the caller wants them",
        "left out for the newest Claude models, and for schemas of open objects",
        "what the caller asks for is sent; whether its model takes it, Bedrock says",
        bedrock.with_strict_tools,
        "a strict tool",
    ),
    Difference(
        "the names of called tools",
        ("bedrock",),
        "spelled like those of the tools",
        "without the letters that are not taken, unlike those of the tools",
        "a call must name a tool of the request",
        bedrock.names_in_full,
        "an id and a name in other letters",
    ),
    Difference(
        "ids and names in the provider's letters",
        ("anthropic", *OPENAI, "gemini", "bedrock", "mistral"),
        "letters that it does not take as their numbers (`files_x2E_read`); Mistral's ids as nine letters of a hash",
        "writes them as they are",
        "the API refuses other letters; a history may come from a provider that takes them",
        identifiers.spell,
        "an id and a name in other letters",
    ),
)
