-- What tenants sign with, and the secrets that their targets name: sealed under the tenant's key.
create table signing_keys (
    tenant_id uuid not null references tenants,
    key_id int not null,
    -- 1: v1 (HMAC-SHA256), 2: v1a (Ed25519).
    scheme smallint not null,
    sealed bytea not null,
    created_at bigint not null,
    -- When it stops to sign, 0 for never: a rotation leaves both in force for a while.
    expires_at bigint not null default 0,
    changed_at bigint not null,
    -- Of the request that made it, so that its repeat makes no other.
    command text,
    command_hash bytea,
    primary key (tenant_id, key_id),
    unique (tenant_id, command)
);
create index signing_keys_changed on signing_keys (changed_at);

-- The value alone is kept, not those before it; null where it was removed.
create table tenant_secrets (
    tenant_id uuid not null references tenants,
    name text not null,
    version int not null,
    sealed bytea,
    changed_at bigint not null,
    primary key (tenant_id, name)
);
create index tenant_secrets_changed on tenant_secrets (changed_at);
