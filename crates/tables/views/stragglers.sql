-- How late each rank came to collectives, as in `tprof report stragglers`. If a rank has more than
-- 2,048 collectives, the report compares a sample of them, but this view compares all.
CREATE VIEW stragglers AS
SELECT run, rank, instance, host,
       count(*) AS collectives,
       CAST(sum(CASE WHEN delay_ns > 0 THEN 1 ELSE 0 END) AS BIGINT) AS last,
       CAST(sum(late_ns) AS BIGINT) AS late_ns,
       CAST(sum(waited_ns) AS BIGINT) AS waited_ns,
       CAST(sum(delay_ns) AS BIGINT) AS delay_ns
FROM meetings
GROUP BY run, rank, instance, host;
