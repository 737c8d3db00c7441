-- The event log, and what is applied in its own transaction: due index, job heads, commands.
-- Instants are bigint milliseconds since the epoch (UTC); ids are uuid, their 16 bytes as they are.

create table installation (
    only_row boolean primary key default true check (only_row),
    id uuid not null,
    shards int not null check (shards > 0),
    partitions int not null check (partitions > 0)
);

-- The cell's clock in ms. Every decision about time goes through it: clock_timestamp, never now().
create function tocsin_now() returns bigint language sql volatile parallel safe
    as $$ select floor(extract(epoch from clock_timestamp()) * 1000)::bigint $$;

create sequence event_position as bigint;

create table events (
    stream_id uuid not null,
    version int not null,
    shard int not null,
    position bigint not null,
    name text not null,
    data bytea not null,
    primary key (stream_id, version)
) with (fillfactor = 100, autovacuum_vacuum_insert_scale_factor = 0.5);
-- Readers follow (shard, position); positions are in commit order within a shard.
create unique index events_feed on events (shard, position);

create table job_heads (
    job_id uuid primary key,
    shard int not null,
    tenant_id uuid not null,
    version int not null,
    status smallint not null,
    overlap_limit int not null,
    plans_at_lease boolean not null,
    misfire_after_ms bigint not null,
    max_lateness_ms bigint not null,
    timeout_ms bigint not null,
    payload_version int not null,
    state bytea not null
);

-- One row for each open run that is ready (phase 0), leased (1) or accepted (2).
-- No step of a run in flight moves an indexed column, so its updates stay in their page (HOT).
create table due_index (
    run_id uuid primary key,
    job_id uuid not null,
    tenant_id uuid not null,
    shard int not null,
    life int not null,
    version int not null,
    attempt int not null,
    fence int not null,
    fails int not null,
    lost int not null,
    abandoned int not null,
    spec_version int not null,
    payload_version int not null,
    nominal bigint not null,
    due_at bigint not null,
    wake_at bigint not null,
    first_leased_at bigint not null,
    leased_at bigint not null,
    until bigint not null,
    kind smallint not null,
    lane smallint not null,
    phase smallint not null,
    owner uuid,
    nonce bytea,
    catch_start bigint,
    catch_end bigint,
    catch_left bigint,
    -- volatile: not in the log, null after a rebuild
    handed_off_at bigint,
    handed_off_partition int,
    handed_off_offset bigint,
    handed_off_topic text,
    hand_offs smallint not null default 0
) with (fillfactor = 45, autovacuum_vacuum_scale_factor = 0.1, autovacuum_analyze_scale_factor = 0.5);
create index due_scan on due_index (shard, wake_at);
create index due_job on due_index (job_id);

create table commands (
    shard int not null,
    job_id uuid not null,
    command_id uuid not null,
    body_hash bytea not null,
    version int not null,
    position bigint not null,
    at bigint not null,
    primary key (job_id, command_id)
);

create table sessions (
    session_id uuid primary key,
    until bigint not null,
    ended boolean not null default false
);

create table shards (
    shard int primary key,
    owner uuid,
    term bigint not null default 0,
    until bigint not null default 0
);
create table schedulers (
    owner uuid primary key,
    until bigint not null
);

create table tenants (
    tenant_id uuid primary key,
    name text not null unique,
    created_at bigint not null
);
create table tenant_keys (
    tenant_id uuid not null references tenants,
    key_id int not null,
    wrapped bytea not null,
    created_at bigint not null,
    primary key (tenant_id, key_id)
);
create table api_keys (
    kid text primary key,
    tenant_id uuid not null references tenants,
    secret_hash bytea not null,
    scopes text[] not null,
    name text not null,
    created_at bigint not null,
    expires_at bigint,
    revoked_at bigint
);

-- Where each reader of the log stands: one row for each view and shard, written with the view.
create table view_positions (
    view text not null,
    shard int not null,
    position bigint not null,
    primary key (view, shard)
);

-- Events of streams that a view could not read on.
create table parked_events (
    view text not null,
    stream_id uuid not null,
    version int not null,
    position bigint not null,
    name text not null,
    primary key (view, stream_id, version)
);

create table job_board (
    tenant_id uuid not null,
    job_id uuid not null,
    view text not null,
    version int not null,
    status text not null,
    one_time boolean not null,
    name text not null,
    schedule text not null,
    timezone text not null,
    target text not null,
    host text not null,
    labels jsonb not null,
    defined_at bigint not null,
    changed_at bigint not null,
    primary key (tenant_id, view, job_id)
);
create index job_board_page on job_board (tenant_id, view, defined_at desc, job_id);
create index job_board_job on job_board (job_id, view);
create index job_board_name on job_board (tenant_id, view, name text_pattern_ops);
create index job_board_labels on job_board using gin (labels jsonb_path_ops);

-- Raised inside a statement whose own count says that a bug would be committed: rolls back all.
create function tocsin_alarm(message text) returns bytea language plpgsql as $$
begin
    raise exception using errcode = 'XX001', message = message;
end $$;
