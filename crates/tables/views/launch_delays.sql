-- Each launch of work: the duration of the call, and the time from its end to the start of the
-- work, as in `tprof report launches`.
CREATE VIEW launch_delays AS
SELECT run, rank, instance, host, process, correlation, launch_start_ns AS start_ns,
       launch_name AS call, launch_duration_ns AS call_ns, duration_ns AS work_ns,
       CASE WHEN start_ns > launch_start_ns + launch_duration_ns
            THEN start_ns - launch_start_ns - launch_duration_ns ELSE 0 END AS delay_ns,
       name, step
FROM kernels
WHERE launch_start_ns IS NOT NULL
UNION ALL
SELECT run, rank, instance, host, process, correlation, launch_start_ns AS start_ns,
       launch_name AS call, launch_duration_ns AS call_ns, duration_ns AS work_ns,
       CASE WHEN start_ns > launch_start_ns + launch_duration_ns
            THEN start_ns - launch_start_ns - launch_duration_ns ELSE 0 END AS delay_ns,
       kind AS name, step
FROM copies
WHERE launch_start_ns IS NOT NULL;
