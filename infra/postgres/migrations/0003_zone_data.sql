-- The version of the zone data that this installation plans with; every node that plans must have it.
alter table installation add column zone_data text;
