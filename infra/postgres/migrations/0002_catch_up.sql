-- What a catch-up needs beside the slots that are left is the job's cursor, not how many they are.
-- The column was never written.
alter table due_index rename column catch_left to catch_cursor;
