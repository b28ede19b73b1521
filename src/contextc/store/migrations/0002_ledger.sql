-- Channels and their ledgers: the requests that were sent to models.
--
-- A channel is (conversation, agent, provider, model, directory). `state` is the state of its ledger as JSON. `version`
-- grows with every commit; a commit compiled from an older version is refused. `attempt` is the pending request: it is set
-- before the request is sent, and cleared when its reply is stored. One that remains failed, or its process died.
CREATE TABLE channel (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    conversation TEXT NOT NULL,
    agent TEXT NOT NULL,
    provider TEXT NOT NULL,
    model TEXT NOT NULL,
    directory TEXT NOT NULL,
    version INTEGER NOT NULL,
    state BLOB NOT NULL,
    attempt BLOB
);
CREATE UNIQUE INDEX channel_name ON channel (conversation, agent, provider, model, directory);

-- The ledger: one row per segment that was sent, append-only. `place` is channel * 2^32 + number. `items` lists the messages
-- and texts of the segment and their rendering; `wire` is the provider's JSON as it was sent.
CREATE TABLE shown (
    place INTEGER PRIMARY KEY,
    items BLOB NOT NULL,
    wire BLOB NOT NULL
);

-- One row per request with what changed in it. `place` is channel * 2^32 + number of the request. Its head (system prompt,
-- tools, settings) is in `head`, once for all requests of a channel with the same head.
CREATE TABLE manifest (
    place INTEGER PRIMARY KEY,
    body BLOB NOT NULL
);
CREATE TABLE head (
    channel INTEGER NOT NULL,
    hash BLOB NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (channel, hash)
);

-- Summaries, each of which replaces everything in an agent's view up to `anchor`, the place of a message.
CREATE TABLE overlay (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    tree INTEGER NOT NULL,
    agent TEXT NOT NULL,
    anchor INTEGER NOT NULL,
    body BLOB NOT NULL
);
CREATE UNIQUE INDEX overlay_anchor ON overlay (tree, agent, anchor);

-- Messages that are never trimmed.
CREATE TABLE pin (
    place INTEGER PRIMARY KEY
);

CREATE TABLE todo (
    conversation TEXT NOT NULL,
    agent TEXT NOT NULL,
    number INTEGER NOT NULL,
    text TEXT NOT NULL,
    state TEXT NOT NULL,
    PRIMARY KEY (conversation, agent, number)
);

-- Token counts by content hash and tokenizer.
CREATE TABLE token_count (
    hash BLOB NOT NULL,
    tokenizer TEXT NOT NULL,
    tokens INTEGER NOT NULL,
    PRIMARY KEY (hash, tokenizer)
);

-- Correction factors for token estimates by model, from the usage that providers report.
CREATE TABLE calibration (
    model TEXT PRIMARY KEY,
    factor REAL NOT NULL,
    samples INTEGER NOT NULL
);
