-- The title that a person has given a conversation. If it is empty, the first user message is the title.
ALTER TABLE conversation ADD COLUMN title TEXT NOT NULL DEFAULT '';
