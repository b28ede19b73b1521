-- Parked turns are listed often, and are few.
CREATE INDEX worker_turn_parked ON worker_turn (parked) WHERE parked > 0;

-- An index for the search in names and titles, in PostgreSQL only. A row has the parts of name and title that a search
-- looks for: three ASCII characters in a row, in lower case, and every other character. Triggers keep it, so that older
-- processes need not know it. It is a table of its own, because rows of `conversation` change with every message.
/* postgres */ CREATE FUNCTION "{schema}".contextc_name_parts(name TEXT, title TEXT) RETURNS TEXT[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT ARRAY(SELECT DISTINCT part FROM (
        SELECT substr(line, start, 3) AS part FROM (
            SELECT line, generate_series(1, length(line) - 2) AS start FROM (
                SELECT lower(name COLLATE "C") AS line UNION ALL SELECT lower(title COLLATE "C")) AS lines) AS starts
        UNION ALL SELECT unnest(string_to_array(name || title, NULL))) AS parts
    WHERE (length(part) = 3 AND octet_length(part) = 3) OR (length(part) = 1 AND octet_length(part) > 1)) $$;
/* postgres */ CREATE TABLE conversation_name (number BIGINT PRIMARY KEY, parts TEXT[] NOT NULL);
/* postgres */ CREATE FUNCTION "{schema}".contextc_index_name() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        DELETE FROM "{schema}".conversation_name WHERE number = OLD.number;
    ELSE
        INSERT INTO "{schema}".conversation_name (number, parts)
            VALUES (NEW.number, "{schema}".contextc_name_parts(NEW.name, NEW.title))
            ON CONFLICT (number) DO UPDATE SET parts = excluded.parts;
    END IF;
    RETURN NULL;
END $$;
/* postgres */ CREATE TRIGGER contextc_index_name AFTER INSERT OR DELETE OR UPDATE OF name, title
    ON "{schema}".conversation FOR EACH ROW EXECUTE FUNCTION "{schema}".contextc_index_name();
/* postgres */ INSERT INTO conversation_name (number, parts)
    SELECT number, "{schema}".contextc_name_parts(name, title) FROM conversation;
/* postgres */ CREATE INDEX conversation_name_parts ON conversation_name USING gin(parts);
