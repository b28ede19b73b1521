-- What people write about conversations: short tags, by which the list is filtered, and notes. No model gets them.
--
-- `request` of a note is the request it is about, as CHANNEL/NUMBER, or '' for the whole conversation.
CREATE TABLE tag (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    conversation INTEGER NOT NULL,
    name TEXT NOT NULL
);
CREATE INDEX tag_conversation ON tag (conversation);
CREATE INDEX tag_name ON tag (name);
CREATE TABLE note (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    conversation INTEGER NOT NULL,
    request TEXT NOT NULL,
    time INTEGER NOT NULL,
    who TEXT NOT NULL,
    text TEXT NOT NULL
);
CREATE INDEX note_conversation ON note (conversation);
