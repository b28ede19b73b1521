"""The figures of a prompt cache over many calls: the share of the input that was read, and the rewrite factor."""

from msgspec import Struct, field


class _Thread(Struct):
    """The calls of one conversation to one model."""

    largest: int = 0
    written: int = 0
    uncached: int = 0


class CacheFigures(Struct):
    """Sums over calls. `add` takes them in any order."""

    input: int = 0
    cache_read: int = 0
    cache_write: int = 0
    _threads: dict[tuple[str, str], _Thread] = field(default_factory=dict[tuple[str, str], _Thread])

    def add(self, conversation: str, model: str, *, input: int, cache_read: int, cache_write: int) -> None:
        """Add the tokens of one call. `input` includes cache reads and writes."""
        self.input += input
        self.cache_read += cache_read
        self.cache_write += cache_write
        thread = self._threads.setdefault((conversation, model), _Thread())
        thread.largest = max(thread.largest, input)
        thread.written += cache_write
        thread.uncached += input - cache_read

    @property
    def cache_share(self) -> float | None:
        """The share of the input that was read from a cache; None without input."""
        return self.cache_read / self.input if self.input else None

    @property
    def rewrite_factor(self) -> float | None:
        """Tokens written to caches, divided by the largest context of each conversation. 1.0 is ideal.

        Where a provider does not report cache writes, uncached input counts. None without input.
        """
        threads = [each for each in self._threads.values() if each.largest]
        largest = sum([each.largest for each in threads])
        return sum([each.written or each.uncached for each in threads]) / largest if largest else None
