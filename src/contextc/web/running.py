"""The turns that run in this process: who runs them, how to stop them, what they wait for."""

from contextc.store import Store


class Running:
    def __init__(self, store: Store, agent: str) -> None:
        self.store, self.agent = store, agent

    async def close(self) -> None:
        """Bring every turn to its end."""
