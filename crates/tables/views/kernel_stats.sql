-- Kernels of each rank by name, as in `tprof report kernels`.
CREATE VIEW kernel_stats AS
SELECT run, rank, instance, host, name, short_name, class,
       count(*) AS runs,
       CAST(sum(duration_ns) AS BIGINT) AS total_ns,
       avg(duration_ns) AS mean_ns,
       min(duration_ns) AS min_ns,
       max(duration_ns) AS max_ns
FROM kernels
GROUP BY run, rank, instance, host, name, short_name, class;
