"""Messages that were read lately, and what was derived from them."""

import contextc as cc
from contextc.compiler import message_cache
from contextc.compiler.message_cache import BODY_BYTES, MAX_BODY, MAX_BYTES, MessageCache
from contextc.messages import Message, encode_message


def body_of(text: str) -> bytes:
    return encode_message(cc.user(text))


def test_a_known_message_is_decoded_once_and_what_is_derived_from_it_computed_once() -> None:
    cache, calls = MessageCache(), list[str]()

    def shout(message: Message, sign: str = "!") -> str:
        calls.append(sign)
        return message.text + sign

    message = cache.decode(body_of("hi"))
    assert cache.decode(body_of("hi")) is message
    assert [cache.derive(message, shout) for _ in range(2)] == ["hi!", "hi!"]
    assert [cache.derive(message, shout, "?") for _ in range(2)] == ["hi?", "hi?"]
    assert calls == ["!", "?"]


def test_a_message_that_is_not_known_is_computed_each_time() -> None:
    cache = MessageCache()
    cache.decode(body_of("hi"))

    def twice(message: Message) -> list[str]:
        return [message.text] * 2

    first, second = (cache.derive(cc.user("hi"), twice) for _ in range(2))
    assert first == second == ["hi", "hi"]
    assert first is not second


def test_the_oldest_messages_go() -> None:
    cache = MessageCache()
    first = cache.decode(body_of("first"))
    for number in range(2 * MAX_BYTES // (MAX_BODY // 2)):
        cache.decode(body_of(f"{number} " + "x" * (MAX_BODY // 2)))
    kept = cache._by_body  # pyright: ignore[reportPrivateUsage]
    assert sum(len(body) + BODY_BYTES for body in kept) <= MAX_BYTES
    assert len(kept) == len(cache._by_identity)  # pyright: ignore[reportPrivateUsage]
    assert cache.decode(body_of("first")) is not first
    large = body_of("x" * MAX_BODY)
    assert cache.decode(large) is not cache.decode(large)


def test_messages_of_short_conversations_are_not_kept() -> None:
    """A server reads the beginning of thousands of conversations, and trims hardly any of them."""
    message_cache.cache.clear()
    with cc.open_store("memory:") as store:
        for number in range(20):
            store.append(f"c{number}", cc.user(f"Question {number}"))
            cc.MessageCompiler(store, "anthropic:claude-opus-4-5").compile(f"c{number}")
    assert not message_cache.cache._by_body  # pyright: ignore[reportPrivateUsage]


def test_a_redacted_message_is_another_message(address: str) -> None:
    """What is trimmed is searched for words and facts, so the cache must not bring back what was removed."""
    message_cache.cache.clear()
    provider = cc.provider("anthropic:claude-opus-4-5", window=8_000)
    with cc.open_store(address) as store:
        compiler = cc.MessageCompiler(store, provider)
        secret = store.append("c", cc.user("The door opens with ORD-77123."))
        numbers = iter(range(1_000))

        def take_steps(count: int) -> bytes:
            body = b""
            for number in [next(numbers) for _ in range(count)]:
                compiled = compiler.compile("c")
                body = compiled.body
                compiler.begin(compiled)
                compiler.commit(compiled, cc.assistant(f"Looked at {number}. " + "word " * 200))
                store.append("c", cc.user(f"Go on with {number}. " + "more " * 200))
            return body

        assert b"ORD-77123" in take_steps(40)
        store.redact("c", secret.id)
        assert b"ORD-77123" not in take_steps(40)
