-- How many compute kernels, communication kernels and copies run on each device, in each interval
-- between two changes. `breakdown` and `comm_overlap` sum these intervals.
CREATE VIEW device_time AS
WITH work AS (
  SELECT run, rank, instance, host, device, start_ns, start_ns + duration_ns AS end_ns,
         CASE WHEN class = 'communication' THEN 0 ELSE 1 END AS compute,
         CASE WHEN class = 'communication' THEN 1 ELSE 0 END AS communication,
         0 AS copy
  FROM kernels
  UNION ALL
  SELECT run, rank, instance, host, device, start_ns, start_ns + duration_ns AS end_ns,
         0 AS compute, 0 AS communication, 1 AS copy
  FROM copies
), edges AS (
  SELECT run, rank, instance, host, device, start_ns AS at_ns, compute, communication, copy
  FROM work
  UNION ALL
  SELECT run, rank, instance, host, device, end_ns AS at_ns,
         -compute AS compute, -communication AS communication, -copy AS copy
  FROM work
), moments AS (
  SELECT run, rank, instance, host, device, at_ns,
         sum(compute) AS compute, sum(communication) AS communication, sum(copy) AS copy
  FROM edges
  GROUP BY run, rank, instance, host, device, at_ns
)
SELECT run, rank, instance, host, device, at_ns AS start_ns,
       lead(at_ns) OVER (PARTITION BY run, rank, instance, host, device ORDER BY at_ns) AS end_ns,
       CAST(sum(compute) OVER (PARTITION BY run, rank, instance, host, device ORDER BY at_ns
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS BIGINT) AS computing,
       CAST(sum(communication) OVER (PARTITION BY run, rank, instance, host, device ORDER BY at_ns
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS BIGINT) AS communicating,
       CAST(sum(copy) OVER (PARTITION BY run, rank, instance, host, device ORDER BY at_ns
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS BIGINT) AS copying
FROM moments;
