-- Steps of each rank, as in `tprof report steps`. Daft has no `count(*)` over a window, wants an `ELSE`, and
-- its `IN` gives wrong rows for a list of columns.
CREATE VIEW step_times AS
WITH placed AS (
  SELECT run, rank, instance, host, process, source, duration_ns,
         row_number() OVER (PARTITION BY run, rank, instance, host, process
           ORDER BY duration_ns) AS place,
         sum(1) OVER (PARTITION BY run, rank, instance, host, process) AS steps
  FROM steps
)
SELECT run, rank, instance, host, process, source,
       count(*) AS steps,
       avg(CASE WHEN 2 * place BETWEEN steps AND steps + 2 THEN duration_ns ELSE NULL END) AS median_ns,
       avg(duration_ns) AS mean_ns,
       min(duration_ns) AS min_ns,
       max(duration_ns) AS max_ns
FROM placed
GROUP BY run, rank, instance, host, process, source;
