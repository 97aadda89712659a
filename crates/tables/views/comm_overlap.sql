-- Communication time of each device, and how much of it is hidden by compute, as in
-- `tprof report overlap`.
CREATE VIEW comm_overlap AS
SELECT run, rank, instance, host, device,
       CAST(sum(CASE WHEN communicating > 0 THEN end_ns - start_ns ELSE 0 END) AS BIGINT)
         AS communication_ns,
       CAST(sum(CASE WHEN communicating > 0 AND computing > 0 THEN end_ns - start_ns ELSE 0 END)
            AS BIGINT) AS hidden_ns,
       CAST(sum(CASE WHEN communicating > 0 AND computing = 0 THEN end_ns - start_ns ELSE 0 END)
            AS BIGINT) AS exposed_ns
FROM device_time
WHERE end_ns IS NOT NULL
GROUP BY run, rank, instance, host, device;
