-- Collectives in which ranks waited for each other, with a row for each rank: the rank with the
-- shortest kernel came last. Only durations are compared, because the clocks of hosts differ by
-- more than ranks do.
CREATE VIEW meetings AS
WITH alone AS (
  SELECT run, meeting, rank, instance, host, count(*) AS times
  FROM collective_runs
  WHERE meeting IS NOT NULL
  GROUP BY run, meeting, rank, instance, host
), met AS (
  -- A rank that is there twice is not who this seems to be.
  SELECT run, meeting FROM alone GROUP BY run, meeting HAVING count(*) > 1 AND max(times) = 1
), placed AS (
  SELECT c.run, c.rank, c.instance, c.host, c.meeting, c.name, c.step, c.bytes, c.start_ns,
         c.added_ns,
         min(c.added_ns) OVER (PARTITION BY c.run, c.meeting) AS shortest_ns,
         max(c.added_ns) OVER (PARTITION BY c.run, c.meeting) AS longest_ns,
         row_number() OVER (PARTITION BY c.run, c.meeting
           ORDER BY c.added_ns, c.rank, c.instance, c.host) AS place,
         lead(c.added_ns) OVER (PARTITION BY c.run, c.meeting
           ORDER BY c.added_ns, c.rank, c.instance, c.host) AS next_ns
  FROM collective_runs c JOIN met ON c.run = met.run AND c.meeting = met.meeting
)
SELECT run, rank, instance, host, meeting, name, step, bytes, start_ns, added_ns,
       longest_ns - added_ns AS late_ns,
       added_ns - shortest_ns AS waited_ns,
       CASE WHEN place = 1 THEN next_ns - added_ns ELSE 0 END AS delay_ns
FROM placed;
