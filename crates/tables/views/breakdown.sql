-- Where the time of each device went, as in `tprof report breakdown`: six parts that add up to the
-- window. `rank_summary` has the same figures, computed once.
CREATE VIEW breakdown AS
SELECT run, rank, instance, host, device,
       CAST(max(end_ns) - min(start_ns) AS BIGINT) AS window_ns,
       CAST(sum(CASE WHEN computing > 0 AND communicating = 0 THEN end_ns - start_ns ELSE 0 END)
            AS BIGINT) AS compute_ns,
       CAST(sum(CASE WHEN computing > 0 AND communicating > 0 THEN end_ns - start_ns ELSE 0 END)
            AS BIGINT) AS overlapped_ns,
       CAST(sum(CASE WHEN computing = 0 AND communicating > 0 THEN end_ns - start_ns ELSE 0 END)
            AS BIGINT) AS exposed_ns,
       CAST(sum(CASE WHEN computing = 0 AND communicating = 0 AND copying > 0
                     THEN end_ns - start_ns ELSE 0 END) AS BIGINT) AS copies_ns,
       CAST(sum(CASE WHEN computing = 0 AND communicating = 0 AND copying = 0
                     THEN end_ns - start_ns ELSE 0 END) AS BIGINT) AS idle_ns
FROM device_time
WHERE end_ns IS NOT NULL
GROUP BY run, rank, instance, host, device;
