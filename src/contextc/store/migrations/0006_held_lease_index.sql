-- An index of the leases that are held now. Recovery reads only these, so a server can run it every few seconds.
CREATE INDEX lease_held ON lease (conversation, agent) WHERE holder <> '';
