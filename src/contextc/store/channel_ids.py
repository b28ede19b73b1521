"""Short ids of channels, for URLs and reports.

The id is a hash of agent, provider, model and directory. It is the same in every conversation and in every process, and
does not reveal its inputs.
"""

from base64 import urlsafe_b64encode
from hashlib import blake2b

from contextc._json import encode_canonical
from contextc.store.ledger_schema import Channel

ID_BYTES = 9  # twelve letters


def channel_id(channel: Channel) -> str:
    """Return the id of a channel."""
    key = encode_canonical([channel.agent, channel.provider, channel.model, channel.directory])
    return urlsafe_b64encode(blake2b(key, digest_size=ID_BYTES).digest()).decode()
