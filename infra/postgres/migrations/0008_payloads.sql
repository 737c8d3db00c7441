-- Objects of the payload store, noted before they are written: bodies that are too large for the
-- events of their jobs. Whoever looks whether something still names one moves `look_at` first.
create table payload_objects (
    sha256 bytea primary key,
    tenant_id uuid not null,
    job_id uuid not null,
    size int not null,
    noted_at bigint not null,
    look_at bigint not null,
    unnamed_since bigint not null default 0
);
create index payload_objects_look on payload_objects (look_at);
