-- Between the master key, which is not here, and tenants' keys: a wrapping key each time the master
-- key changes. What is older than the newest is being emptied, and may not go before it is.
create table wrapping_keys (
    number int primary key,
    -- The name of the master key that it is under.
    master text not null,
    wrapped bytea not null,
    created_at bigint not null
);
-- What every other secret of the installation is derived from.
create table root_secret (
    only_row boolean primary key default true check (only_row),
    wrapping_key int not null references wrapping_keys,
    wrapped bytea not null
);
-- Null: under the master key itself, as before; the first process that starts puts that right.
alter table tenant_keys add column wrapping_key int references wrapping_keys;
create index tenant_keys_wrapping on tenant_keys (wrapping_key, tenant_id, key_id);
-- When a tenant's key was destroyed, 0 for never.
alter table tenants add column erased_at bigint not null default 0;
create index tenants_erased on tenants (erased_at) where erased_at > 0;
-- Whether the value is `user:password`; null where it was set before anybody asked.
alter table tenant_secrets add column is_pair boolean;
