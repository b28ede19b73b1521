-- Requests that other software made.
--
-- `observed_key` finds the conversation of such a request. `key` is a hash: of the client's own id, of a response id, or of
-- all messages of a request. `place` is channel * 2^32 + number of the request, 0 for a key of the whole conversation.
CREATE TABLE observed_key (
    key BLOB NOT NULL,
    place INTEGER NOT NULL,
    conversation INTEGER NOT NULL,
    PRIMARY KEY (key, conversation, place)
) WITHOUT ROWID;

-- One row per observed conversation: the client, its session, what kind of conversation it is (main, agent, side), and the
-- request of the parent conversation that it belongs to.
CREATE TABLE observed_conversation (
    conversation INTEGER PRIMARY KEY,
    client TEXT NOT NULL,
    session TEXT NOT NULL,
    agent TEXT NOT NULL,
    kind TEXT NOT NULL,
    parent INTEGER NOT NULL,
    parent_place INTEGER NOT NULL
);
CREATE INDEX observed_conversation_session ON observed_conversation (session);
