-- Calendars of tenants. A version is never changed; what is current says the row in `calendars`.
create table calendars (
    tenant_id uuid not null,
    name text not null,
    version int not null,
    deleted boolean not null,
    primary key (tenant_id, name)
);
create table calendar_versions (
    tenant_id uuid not null,
    name text not null,
    version int not null,
    content bytea not null,
    expanded_until bigint not null,
    at bigint not null,
    actor text not null,
    primary key (tenant_id, name, version)
);
-- Jobs that may use a calendar, written before they do. A job has `applied` once it follows that
-- version; what is behind `wanted` is visited until it does.
create table calendar_uses (
    job_id uuid not null,
    tenant_id uuid not null,
    name text not null,
    wanted int not null,
    applied int not null,
    at bigint not null,
    primary key (job_id, tenant_id, name)
);
create index calendar_uses_calendar on calendar_uses (tenant_id, name, job_id);
create index calendar_uses_behind on calendar_uses (job_id, tenant_id, name) where applied < wanted;
