"""The tools of `contextc mcp`: what a coding agent can ask of a store. They read only, and return text in pages.

What a store contains was written by models, programs and other people. So every answer has it between tags, with all
tags of its own escaped: the model that reads it can tell data from instructions. An answer is limited in size, and
says how to read on.
"""

import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple, cast

from contextc._json import JSON, JSONObject, encode
from contextc.cli.console import pluralize
from contextc.cli.explain import find_channels
from contextc.cli.lint import load_requests, load_stored_requests
from contextc.compiler.history import HistoryPassage, fetch_result, join_passages, render_passage, search_history
from contextc.compiler.past_requests import explain
from contextc.errors import InvalidInput, UnknownConversation
from contextc.formats import format_names
from contextc.linting import convert, fix, lint
from contextc.messages import Viewer, escape_markers, escaped_line, to_plain_text, with_tags
from contextc.models.tokens import get_counter
from contextc.store import Store
from contextc.store.conversation_list import ConversationOverview, list_names, list_names_in
from contextc.store.message_log import DEFAULT_AGENT, agent_of

PAGE_CHARACTERS = 16_000
"""Characters of an answer."""
MAX_TEXT = 2_000_000
"""Characters of a text that is read page by page."""
LISTED, SEARCHED = 20, 100
"""Conversations that one call lists, and searches."""
SEARCH_TOKENS, TOKENS_EACH = 3_000, 1_000
"""Tokens of the passages of a search, and of those of one conversation."""
MESSAGE_CHARACTERS = 1_500
"""Characters of a message where several are read."""
MAX_FINDINGS = 100
MAX_FILE_BYTES = 20_000_000


class FoundPassage(NamedTuple):
    conversation: str
    passage: HistoryPassage


class StoreTools:
    """The tools, for the conversations of a directory; with None for all of the store."""

    def __init__(self, store: Store, directory: str | None) -> None:
        self._store, self._directory = store, None if directory is None else os.path.realpath(directory)
        self._counter = get_counter("unknown")

    def functions(self) -> list[Callable[..., str]]:
        """Return the tools, with the docstrings that a model reads."""
        return [
            self.list_conversations,
            self.search_conversations,
            self.read_conversation,
            self.read_message,
            self.explain_request,
            self.find_waste,
            self.lint_request,
            self.fix_request,
            self.convert_request,
        ]

    # ── conversations ─────────────────────────────────────────────────────────────────────────────────────────────────

    def list_conversations(self, search: str = "", before: str = "") -> str:
        """List recorded conversations and past sessions of coding agents, most recently active first.

        search: words in the name or title. before: the value that the previous page says.
        """
        found: list[str] = []
        names = self._names_after(before)
        for number, name in enumerate(names, 1):
            seen = self._store.overview(name)
            if search.casefold() in f"{name}\n{seen.title}".casefold():
                found.append(_overview_line(seen))
            if len(found) == LISTED and number < len(names):
                return f"{_data(found)}\nThere are more: call again with before={_cursor(name)!r}."
        return _data(found) if found else "There are no such conversations."

    def search_conversations(self, query: str, conversation: str = "", before: str = "") -> str:
        """Search what was said and done in past sessions: messages, tool calls, results. Use it to find what was
        decided, tried, or found out before.

        query: words; rare ones count more. conversation: search one only. before: the value that the previous page
        says.
        """
        names = [self._checked(conversation)] if conversation else self._names_after(before)
        some, rest = names[:SEARCHED], names[SEARCHED:]
        found = [FoundPassage(name, each) for name in some for each in self._search(name, query)]
        found.sort(key=lambda each: -each.passage.score)
        texts: list[str] = []
        left = SEARCH_TOKENS
        for each in found:
            text = render_passage(each.passage, each.conversation)
            left -= self._counter.count_text(text)
            if left < 0:
                break
            texts.append(text)
        more = f"\nOlder conversations were not searched: call again with before={_cursor(some[-1])!r}." if rest else ""
        if not texts:
            searched = pluralize(len(some), "conversation")
            return f"Nothing found in {searched}. Try other words: names, paths, ids, errors.{more}"
        shown = join_passages(texts)
        return f"{shown}\nread_message reads a whole message: its conversation, and its id, such as r57.{more}"

    def read_conversation(self, conversation: str, after: int = 0) -> str:
        """Read the messages of a conversation, oldest first, long ones shortened.

        after: read on after message number N.
        """
        name = self._checked(conversation)
        texts, size, last = list[str](), 0, 0
        messages = self._store.load(name, after=max(0, after))
        for message in messages:
            plain = to_plain_text(message)
            text = plain[:MESSAGE_CHARACTERS]
            if len(plain) > len(text):
                text += f"\n… ({len(plain):,} characters; read_message reads them)"
            title = f"r{message.seq} ({message.author or message.role})"
            size += len(text) + len(title)
            if texts and size > PAGE_CHARACTERS:
                return f"{_data(texts)}\nThere are more messages: call again with after={last}."
            texts.append(f"{escaped_line(title)}\n{escape_markers(text)}")
            last = message.seq
        return _data(texts) if texts else "There are no further messages."

    def read_message(self, conversation: str, id: str, offset: int = 0) -> str:
        """Read a message, a tool result or a text file of a conversation by its id, such as r57 or r57.2.

        offset: the character to begin at.
        """
        name = self._checked(conversation)
        text = fetch_result(self._store, name, self._viewer(name), id, offset, PAGE_CHARACTERS)
        return with_tags("search-results", escape_markers(text))

    # ── requests ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def explain_request(self, conversation: str, request: int = 0, model: str = "", offset: int = 0) -> str:
        """Explain a recorded request to a model: what was sent, what was left out and why, tokens, cache.

        request: its number; 0 is the last one. model: selects one of several models.
        """
        name = self._checked(conversation)
        found = find_channels(self._store, name, model or None, None, None)
        texts = [str(explain(self._store, each.channel, request or None)) for each in found]
        return _page(escape_markers("\n\n".join(texts)), offset, "explain_request")

    def find_waste(self, conversation: str = "", offset: int = 0) -> str:
        """Find what conversations waste or fail at: cache misses and their causes, unused tools, large results,
        retries, each with its cost and a fix. Without a conversation, all are examined.
        """
        from contextc.analysis import findings, store_findings  # it takes time to import
        from contextc.analysis.finding import sort_by_cost

        if conversation:
            found = findings(self._store, self._checked(conversation))
        else:
            collected: list[Sequence[object]] = []
            store_findings(self._store, self._names(), on_findings=collected.append)
            found = sort_by_cost([each for some in collected for each in some])  # pyright: ignore[reportArgumentType]
        lines = [
            f"{each.code} {each.conversation}"
            + (f", request {each.request_label}" if each.request else "")
            + (f", ${each.cost:.4f}" if each.cost is not None else "")
            + (f", {each.tokens:,} tokens" if each.tokens else "")
            + f": {each.title}"
            + (f" Fix: {each.fix}" if each.fix else "")
            for each in found[:MAX_FINDINGS]
        ]
        if len(found) > MAX_FINDINGS:
            lines.append(f"{len(found) - MAX_FINDINGS:,} further findings cost less.")
        return _page(escape_markers("\n".join(lines)), offset, "find_waste") if lines else "There are no findings."

    def lint_request(
        self, request: str = "", file: str = "", conversation: str = "", format: str = "", offset: int = 0
    ) -> str:
        """Check a request to a model provider: which rules of the provider it breaks, with the provider's own errors.

        Pass one of: request (JSON), file (a path in this project), conversation (its last recorded requests). format:
        such as anthropic or openai_chat, if it is not recognised.
        """
        lines: list[str] = []
        for where, body, known, answered in self._requests(request, file, conversation, format):
            for each in lint(body, format=known, answered=answered):
                error = f" Provider: {each.error}" if each.error else ""
                lines.append(" ".join([*filter(None, [where, each.path]), f"{each.code}: {each.message}{error}"]))
        return _page(escape_markers("\n".join(lines)), offset, "lint_request") if lines else "No rule is broken."

    def fix_request(
        self, request: str = "", file: str = "", conversation: str = "", format: str = "", offset: int = 0
    ) -> str:
        """Repair a request that its provider would refuse, and say how. No file is changed: the answer has the JSON.

        Takes the same as lint_request.
        """
        texts: list[str] = []
        for where, body, known, _ in self._requests(request, file, conversation, format):
            fixed, repairs = fix(cast(JSONObject, body), format=known)
            texts += [
                escape_markers(f"{where} {each.path} {each.code}: {each.message} Repair: {each.repair}".strip())
                for each in repairs
            ]
            texts.append(_json_text(fixed))
        return _page("\n".join(texts), offset, "fix_request")

    def convert_request(
        self, to: str, request: str = "", file: str = "", conversation: str = "", format: str = "", offset: int = 0
    ) -> str:
        """Convert a request to the format of another provider, and say what that cannot represent.

        to: such as anthropic, openai_chat, openai_responses, gemini. The rest as in lint_request.
        """
        if to not in format_names():
            raise InvalidInput("to must be a format", got=to, fix=f"Pass one of {', '.join(format_names())}.")
        texts: list[str] = []
        for where, body, known, _ in self._requests(request, file, conversation, format):
            made = convert(body, source=known, target=to)
            texts += [escape_markers(" ".join(filter(None, [where, warning]))) for warning in made.warnings]
            texts.append(_json_text(cast(JSON, made)))
        return _page("\n".join(texts), offset, "convert_request")

    # ── what may be read ──────────────────────────────────────────────────────────────────────────────────────────────

    def _names(self) -> list[str]:
        """Return the names of the conversations that may be read, most recently active first."""
        directory = self._directory
        return self._store.read(lambda tx: list_names(tx) if directory is None else list_names_in(tx, directory))

    def _names_after(self, before: str) -> list[str]:
        names = self._names()
        if not before:
            return names
        cursors = list(map(_cursor, names))
        if before not in cursors:
            raise InvalidInput("before must be the value that the previous page says", got=before[:100])
        return names[cursors.index(before) + 1 :]

    def _checked(self, conversation: str) -> str:
        """Return the name of a conversation that may be read. Raises `UnknownConversation`."""
        if conversation not in self._names():
            raise UnknownConversation(conversation)
        return conversation

    def _viewer(self, conversation: str) -> Viewer:
        """Return the view of the agent that a conversation is of."""
        row = self._store.read(
            lambda tx: tx.row(
                "SELECT agent FROM main.channel WHERE conversation = ? ORDER BY number DESC LIMIT 1", conversation
            )
        )
        agent = agent_of(row[0]) if row is not None else DEFAULT_AGENT
        return Viewer(agent, None, (agent,), shows_failed=True, is_going=frozenset[str]().__contains__)

    def _search(self, conversation: str, query: str) -> list[HistoryPassage]:
        return search_history(
            self._store, conversation, query, self._viewer(conversation), self._counter, max_tokens=TOKENS_EACH
        )

    def _requests(self, request: str, file: str, conversation: str, format: str) -> list[tuple[str, JSON, str, bool]]:
        """Return requests with their places, their formats, and whether they were answered."""
        if len([each for each in (request, file, conversation) if each]) != 1:
            raise InvalidInput("expected one of request, file and conversation", fix="Pass one of them.")
        if conversation:
            return load_stored_requests(self._store, self._checked(conversation), None, None)
        data = request.encode() if request else self._read_file(file)
        requests, known = load_requests(file or "request", format or None, data=data)
        return [(requests.position_label(index), body, known, False) for index, body in enumerate(requests.bodies)]

    def _read_file(self, file: str) -> bytes:
        """Return the content of a file of the project."""
        root = self._directory or os.getcwd()
        path = Path(os.path.realpath(os.path.join(root, file)))
        if not path.is_relative_to(os.path.realpath(root)) or not path.is_file():
            raise InvalidInput("file: not found in the project", got=file[:200], fix=f"Pass a path below {root}.")
        if path.stat().st_size > MAX_FILE_BYTES:
            raise InvalidInput(f"file: too large, the limit is {MAX_FILE_BYTES:,} bytes", got=file[:200])
        return path.read_bytes()


def _cursor(name: str) -> str:
    """Return what stands for a conversation outside of the data: others may have written its name."""
    return sha256(name.encode()).hexdigest()[:16]


def _overview_line(seen: ConversationOverview) -> str:
    when = f"{datetime.fromtimestamp(seen.spoken / 1000, UTC):%Y-%m-%d %H:%M}" if seen.spoken else "no messages"
    client = seen.observed.label if seen.observed else ""
    facts = [seen.name, seen.title, when, f"{seen.length:,} messages", seen.model, client]
    return escaped_line(" · ".join([each for each in facts if each]))


def _data(texts: Sequence[str]) -> str:
    return with_tags("search-results", "\n".join(texts))


def _page(text: str, offset: int, tool: str) -> str:
    """Return a part of an escaped text as data, and how to read on."""
    text = text[:MAX_TEXT]
    start = max(0, offset)
    piece = text[start : start + PAGE_CHARACTERS]
    rest = len(text) - start - len(piece)
    more = f"\n{rest:,} characters follow: call {tool} again with offset={start + len(piece)}." if rest > 0 else ""
    return with_tags("search-results", piece) + more


def _json_text(value: JSON) -> str:
    """Return JSON without a character that a tag begins with: it is the same value."""
    return encode(value).decode().replace("<", "\\u003c")
