"""Requests of frameworks that have their messages in the wire format of a provider: litellm, Strands, Google's ADK.

The framework sends its own messages as long as nothing has to be cut. Otherwise all of them are encoded again, in the
same way each time, so that the prefix stays the same.
"""

from collections.abc import Sequence
from typing import NamedTuple, Unpack

from msgspec.structs import replace

from contextc._json import JSONObject
from contextc.adapters.request_preparation import PreparedRequest, PreparerPool, RequestPreparer, load_messages
from contextc.compiler.ledger.row_encoding import list_blob_names
from contextc.compiler.options import CompilerOptionArguments
from contextc.errors import UnknownModel
from contextc.formats import formatter
from contextc.messages import Message, Usage
from contextc.providers import Provider, provider, provider_names
from contextc.store import Store
from contextc.store.conversation_types import DEFAULT_AGENT
from contextc.tools.spec import AnyTool


class WireRequest(NamedTuple):
    """A request that has begun. `messages` is None if the framework sends its own."""

    preparer: RequestPreparer
    prepared: PreparedRequest
    messages: list[JSONObject] | None


class WireRequests:
    """Records and fits the requests of one framework. One call has a preparer for itself while it runs."""

    def __init__(
        self,
        store: Store,
        format: str,
        *,
        agent: str = DEFAULT_AGENT,
        **options: Unpack[CompilerOptionArguments],
    ) -> None:
        self.store, self.formatter = store, formatter(format)
        self._pool = PreparerPool(store, agent=agent, **options)

    def begin(
        self,
        conversation: str,
        model: Provider,
        messages: Sequence[JSONObject],
        *,
        system_prompt: str | None = None,
        tools: Sequence[AnyTool | JSONObject] = (),
        output: int | None = None,
    ) -> WireRequest:
        """Record the messages, and prepare the request. `tools` as JSON are in OpenAI's chat format."""
        request = self.formatter.decode_request({self.formatter.messages_key: list(messages)})
        preparer = self._pool.take(conversation, model)
        try:
            prepared = preparer.prepare(request.messages, system_prompt=system_prompt, tools=tools, output=output)
        except BaseException:
            self._pool.give_back(preparer)
            raise
        if prepared.is_unchanged:
            return WireRequest(preparer, prepared, None)
        request = WireRequest(preparer, prepared, None)
        try:
            return request._replace(messages=self.formatter.format(_list_messages(prepared)))
        except BaseException as error:
            self.abort(request, error)
            raise

    def commit(self, request: WireRequest, reply: Message, usage: Usage | None = None) -> None:
        """Store the reply with its request."""
        try:
            request.preparer.commit(request.prepared, [replace(reply, usage=usage or reply.usage)])
        finally:
            self._pool.give_back(request.preparer)

    def abort(self, request: WireRequest, error: BaseException | str) -> None:
        """Store that the request got no reply."""
        try:
            request.preparer.abort(request.prepared, error)
        finally:
            self._pool.give_back(request.preparer)

    def load(self, conversation: str) -> list[JSONObject]:
        """Return the recorded messages of the current branch, since the context was last cleared."""
        messages = load_messages(self.store, conversation)
        blobs = {name: self.store.blob(name) for name in list_blob_names(messages)}
        return self.formatter.encode_history(messages, blobs=blobs)

    def decode_message(self, message: JSONObject) -> Message:
        """Return a reply that the framework has as a message."""
        (found,) = self.formatter.decode_request({self.formatter.messages_key: [message]}).messages
        return found


def find_provider(name: str, model: str, window: int | None, known_window: int | None = None) -> Provider:
    """Return a provider. `known_window` is what the framework knows about the model, if contextc does not know it."""
    format = None if name in provider_names() else "openai_chat"
    try:
        return provider(f"{name}:{model}", window=window, format=format)
    except UnknownModel:
        if not (window or known_window):
            raise
        return provider(f"{name}:{model}", window=window or known_window, format=format)


def _list_messages(prepared: PreparedRequest) -> list[Message]:
    """Return the messages as they are sent. Unchanged ones are those that were given, with the bytes of their media."""
    found: list[Message] = []
    for indexes, message in prepared.messages:
        found += [prepared.history[index] for index in indexes] if message is None else [message]
    return found
