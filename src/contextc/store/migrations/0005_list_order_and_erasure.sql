-- The order of the conversation list, an index of branches, and pending erasures.
--
-- The list shows the most recently active conversation first. `spoken` is the second of the last message on the current
-- branch, or of `created` if that branch has none of its own. A page is read along its index. An append changes it only if
-- the second differs.
ALTER TABLE conversation ADD COLUMN spoken INTEGER NOT NULL DEFAULT 0;
UPDATE conversation SET spoken = COALESCE((SELECT time FROM message WHERE place = (SELECT max(place) FROM message
    WHERE place BETWEEN branch * 4294967296 AND branch * 4294967296 + 4294967295)), created) / 1000;
CREATE INDEX conversation_spoken ON conversation (spoken, number);

-- Without this index, listing the branches of one conversation reads all branches.
CREATE INDEX branch_conversation ON branch (conversation);

-- One row per redaction or deletion whose content may still be in the files of the store. It is written in the same
-- transaction, and removed when the files are clean. If a process dies in between, the next one continues.
CREATE TABLE erasure (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    time INTEGER NOT NULL
);
