-- Whom tenants tell by default. A version is never changed; one without content ends the default.
create table callback_defaults (
    tenant_id uuid not null references tenants,
    version int not null,
    content bytea,
    at bigint not null,
    actor text not null,
    primary key (tenant_id, version)
);
-- Jobs that have, or had, callbacks of their own: the ends of all others need no look at a spec.
create table callback_jobs (
    job_id uuid primary key
);
-- Nothing that is in the log so far has callbacks: the reactor begins behind it.
insert into view_positions (view, shard, position)
select 'callbacks', shard, max(position) from events group by shard;
