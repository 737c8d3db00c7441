-- When the pause of a job ends by itself, 0 for never; few jobs are in the index at any time.
alter table job_heads add column resume_at bigint not null default 0;
create index job_heads_resume on job_heads (shard, resume_at) where resume_at > 0;
