-- Conversations in the order of a list, the branches of a conversation, and content that is still to be erased.
--
-- A list shows the conversation first that was last spoken in. `spoken` is that second, so that a page is read along an
-- index: the second of the last message on the current branch, or of `created` where that branch has none of its own. An
-- append changes it only where the second is another one.
ALTER TABLE conversation ADD COLUMN spoken INTEGER NOT NULL DEFAULT 0;
UPDATE conversation SET spoken = COALESCE((SELECT time FROM message WHERE place = (SELECT max(place) FROM message
    WHERE place BETWEEN branch * 4294967296 AND branch * 4294967296 + 4294967295)), created) / 1000;
CREATE INDEX conversation_spoken ON conversation (spoken, number);

-- Without it, every list of the branches of one conversation reads those of all.
CREATE INDEX branch_conversation ON branch (conversation);

-- One row for each redaction or deletion whose content may still be in the files of the store. It is written with the
-- redaction itself, and removed when the files are clean. A process that dies in between leaves it to the next one.
CREATE TABLE erasure (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    time INTEGER NOT NULL
);
