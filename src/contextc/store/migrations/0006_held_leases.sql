-- The leases that are held now, among all that ever were: looking for turns whose process died reads these alone, so a
-- server can do it every few seconds.
CREATE INDEX lease_held ON lease (conversation, agent) WHERE holder <> '';
