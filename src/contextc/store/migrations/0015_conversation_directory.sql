-- The working directory of the program that a conversation was recorded from or imported from, so that the conversations of a
-- project can be found. Empty if it is not known.
ALTER TABLE conversation ADD COLUMN directory TEXT NOT NULL DEFAULT '';
