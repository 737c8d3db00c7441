-- The client's own name for a job. Of jobs defined before, lists show it once the board was built
-- anew (`tocsin projector --rebuild job_board`); they are found by it at once.
alter table job_board add column key text not null default '';
