-- The recurring jobs of a tenant by their schedule: a preview adds up what they ask for.
create index job_board_schedules on job_board (tenant_id, view, schedule, timezone, job_id)
    where status = 'active' and not one_time;
