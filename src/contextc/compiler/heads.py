"""The head of a request: system prompt, tools and settings.

Computes its hashes, decides whether a change breaks the prefix, and caches the encoded parts.
"""

from hashlib import blake2b

from msgspec.structs import replace

from contextc._json import JSONObject, encode_canonical
from contextc.compiler.ask import OUTPUT, CompileInput, PreparedTools
from contextc.compiler.compiled import MESSAGES_PLACEHOLDER, SESSION_PLACEHOLDER, HeadParts
from contextc.draft import Budget, CompilerOptions
from contextc.formats.base import Formatter, Request
from contextc.formats.settings import RequestSettings
from contextc.ledger.standing import HeadHashes
from contextc.messages import system
from contextc.prompts import Prompt

NEW_ENCODER = "new encoder version"
MAX_CACHED_HEADS = 64


def hash_head(
    formatter: Formatter, options: CompilerOptions, prompt: Prompt, tools: PreparedTools, settings: JSONObject
) -> HeadHashes:
    counted = {name: settings[name] for name in formatter.prefix_settings if name in settings}
    static = prompt.static_hash if prompt.static else ""
    if options.placement == "head" and prompt.dynamic:
        static += blake2b(prompt.dynamic_text.encode(), digest_size=8).hexdigest()
    return HeadHashes(
        static=static,
        tools=tools.hash,
        settings=blake2b(encode_canonical(counted), digest_size=8).hexdigest() if counted else "",
        encoder=f"{formatter.name}/{formatter.version}",
    )


def find_prefix_change(ask: CompileInput, old: HeadHashes, resume: bool) -> str:
    """Return the reason why the prefix cannot be extended; empty if it can."""
    new = ask.terms.head
    if new.encoder != old.encoder:
        return NEW_ENCODER
    keeps = resume and (ask.provider.resends_head or ask.provider.keeps_static)
    if new.static != old.static and not (keeps and ask.options.static_change == "update"):
        return "system prompt changed"
    if new.tools != old.tools and not (resume and ask.provider.resends_head):
        return "tools changed"
    if new.settings != old.settings and not resume:
        return "reasoning settings changed"
    return ""


def build_head(ask: CompileInput, budget: Budget, *, resume: bool, marked: bool) -> HeadParts:
    provider, terms = ask.provider, ask.terms
    output, formatter = terms.output, terms.formatter
    bare = resume and not provider.resends_head
    length = None
    if output is not None:  # the requested length, if the window has room for it
        length = output if budget.input + output <= budget.window else budget.reserve or output
    elif formatter.needs_length:
        length = budget.reserve or min(provider.model.output, OUTPUT)
    hashed = ("", "") if bare else (terms.head.static, terms.head.tools)
    key = (*hashed, length, terms.given, resume, marked)
    if (found := ask.heads.get(key)) is not None:
        return found
    text = "" if bare else _static_text(ask.options, terms.prompt)
    settings = formatter.settings.write(RequestSettings(model=provider.asks_for, max_output_tokens=length)).body
    if resume and provider.session_field:
        settings[provider.session_field] = SESSION_PLACEHOLDER
    settings = _merge_settings(settings, terms.settings)
    tools = () if bare else terms.tools.tools
    request = Request(messages=(), system=system(text) if text else None, tools=tools, settings=settings)
    request = replace(request, settings=formatter.chosen(request))
    body = formatter.assemble(request, [MESSAGES_PLACEHOLDER])
    if marked:
        body = formatter.marked_head(body)
    if len(ask.heads) >= MAX_CACHED_HEADS:
        ask.heads.clear()
    found = ask.heads[key] = HeadParts.of(formatter.messages_key, body, settings)
    return found


def _merge_settings(ours: JSONObject, theirs: JSONObject) -> JSONObject:
    """Return our settings overridden by the caller's, merged inside objects that both contain."""
    both: JSONObject = {**ours, **theirs}
    for name in ours.keys() & theirs.keys():
        if isinstance(ours[name], dict) and isinstance(theirs[name], dict):
            both[name] = {**ours[name], **theirs[name]}
    return both


def _static_text(options: CompilerOptions, prompt: Prompt) -> str:
    text = prompt.static_text
    if options.placement == "head" and prompt.dynamic:
        text = f"{text}\n\n{prompt.dynamic_text}" if text else prompt.dynamic_text
    return text
