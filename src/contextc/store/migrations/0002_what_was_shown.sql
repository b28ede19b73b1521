-- What models have been shown: channels and their ledgers, and what belongs to them.
--
-- A channel is (conversation, agent, provider, model, directory). `state` is where its ledger stands, as JSON; `version`
-- grows with every commit, and a commit that was compiled from an older one is refused. `attempt` is the request on its
-- way: there from before its first byte leaves until its reply is stored. One that stays failed, or its process died.
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

-- The ledger: what was shown, a segment a row, appended and never rewritten. `place` is channel * 2^32 + number. `items` says
-- which messages and texts it is and how each was rendered, `wire` is the provider's JSON of it, as it went out.
CREATE TABLE shown (
    place INTEGER PRIMARY KEY,
    items BLOB NOT NULL,
    wire BLOB NOT NULL
);

-- One row a request: what is new about it. `place` is channel * 2^32 + number of the request. What its head was (system
-- prompt, tools, settings) stands in `head`, once for all requests of a channel that have the same.
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

-- Summaries, each in the place of everything an agent sees up to `anchor`, the place of a message.
CREATE TABLE overlay (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    tree INTEGER NOT NULL,
    agent TEXT NOT NULL,
    anchor INTEGER NOT NULL,
    body BLOB NOT NULL
);
CREATE UNIQUE INDEX overlay_anchor ON overlay (tree, agent, anchor);

-- Messages that are never cut away.
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

-- Tokens of a content, by its hash and the tokenizer that counted them.
CREATE TABLE token_count (
    hash BLOB NOT NULL,
    tokenizer TEXT NOT NULL,
    tokens INTEGER NOT NULL,
    PRIMARY KEY (hash, tokenizer)
);

-- How far off the estimate for a model is, as its provider's own figures show.
CREATE TABLE calibration (
    model TEXT PRIMARY KEY,
    factor REAL NOT NULL,
    samples INTEGER NOT NULL
);
