-- Parked turns are listed often, and are few.
CREATE INDEX worker_turn_parked ON worker_turn (parked) WHERE parked > 0;
