-- Gaps between two pieces of work on a stream, with the reason why the second did not begin
-- earlier, as in `tprof report idle`: `host wait` (it was launched only after the stream had become
-- idle), `kernel wait` (it was launched before, and began within 30 µs), `other` (it began later)
-- or `launch not seen`.
CREATE VIEW idle_gaps AS
WITH work AS (
  SELECT run, rank, instance, host, process, device, context, stream, start_ns,
         start_ns + duration_ns AS end_ns, duration_ns, launch_start_ns, name, correlation
  FROM kernels
  UNION ALL
  SELECT run, rank, instance, host, process, device, context, stream, start_ns,
         start_ns + duration_ns AS end_ns, duration_ns, launch_start_ns, kind AS name, correlation
  FROM copies
), placed AS (
  SELECT run, rank, instance, host, process, device, context, stream, start_ns, launch_start_ns, name,
         max(end_ns) OVER (
           PARTITION BY run, rank, instance, host, process, device, context, stream
           ORDER BY start_ns, duration_ns, correlation
           ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS idle_from_ns
  FROM work
)
SELECT run, rank, instance, host, process, device, context, stream,
       idle_from_ns AS start_ns, start_ns - idle_from_ns AS length_ns,
       CASE WHEN launch_start_ns IS NULL THEN 'launch not seen'
            WHEN launch_start_ns > idle_from_ns THEN 'host wait'
            WHEN start_ns - idle_from_ns < 30000 THEN 'kernel wait'
            ELSE 'other' END AS cause,
       name AS next
FROM placed
WHERE start_ns > idle_from_ns;
