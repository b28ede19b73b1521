-- A full-text index of messages. A search adds the messages that came since the last one, so an append does not wait for it.
-- `search_progress` says up to which message a branch is indexed, and by which version of the splitting into terms.
CREATE TABLE search_progress (
    branch INTEGER PRIMARY KEY,
    seq INTEGER NOT NULL,
    version INTEGER NOT NULL
);

-- One row per piece of a message: the branch (upper 32 bits), the message's seq (24 bits), and the number of the piece (8
-- bits). It has terms only, no text and no positions. contextc splits the text itself, so all characters belong to terms.
/* sqlite */ CREATE VIRTUAL TABLE search_term USING fts5(
    terms, content='', detail='none', tokenize="ascii tokenchars '!#$%&*+,-./:;<=>?@\^_|~'");
/* postgres */ CREATE TABLE search_term (rowid BIGINT PRIMARY KEY, terms TSVECTOR NOT NULL);
/* postgres */ CREATE INDEX search_term_terms ON search_term USING gin(terms);

-- What is removed from a message is removed from the index, by whichever process. FTS5 marks terms as deleted and keeps them
-- until it is optimized, which takes as long as all of the index. So it is emptied, and later searches build it again.
/* sqlite */ CREATE TRIGGER search_term_redacted AFTER UPDATE OF body ON message
    WHEN EXISTS (SELECT 1 FROM search_progress WHERE branch = OLD.place >> 32 AND seq >= (OLD.place & 4294967295)) BEGIN
    INSERT INTO search_term (search_term) VALUES ('delete-all');
    DELETE FROM search_progress;
END;
/* sqlite */ CREATE TRIGGER search_term_deleted AFTER DELETE ON message
    WHEN EXISTS (SELECT 1 FROM search_progress WHERE branch = OLD.place >> 32 AND seq >= (OLD.place & 4294967295)) BEGIN
    INSERT INTO search_term (search_term) VALUES ('delete-all');
    DELETE FROM search_progress;
END;
/* postgres */ CREATE FUNCTION "{schema}".contextc_unindex_message() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    first BIGINT := ((OLD.place >> 32) << 32) + ((OLD.place & 16777215) << 8);
BEGIN
    DELETE FROM "{schema}".search_term WHERE rowid BETWEEN first AND first + 255;
    RETURN NULL;
END $$;
/* postgres */ CREATE TRIGGER contextc_unindex_message AFTER DELETE OR UPDATE OF body
    ON "{schema}".message FOR EACH ROW EXECUTE FUNCTION "{schema}".contextc_unindex_message();
