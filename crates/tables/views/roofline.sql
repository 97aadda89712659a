-- Operators by the sizes of their inputs, with the operations and bytes of one execution, and the
-- time of the kernels and copies that they launched, as in `tprof report flops`. The operations of
-- an operator are counted only if no operator within it has a formula, so that nothing is counted
-- twice. `device_ns` is null if no execution launched anything.
CREATE VIEW roofline AS
WITH work AS (
  SELECT run, rank, instance, host, launch_thread, launch_start_ns, launch_duration_ns, launch_name,
         duration_ns
  FROM kernels WHERE launch_start_ns IS NOT NULL
  UNION ALL
  SELECT run, rank, instance, host, launch_thread, launch_start_ns, launch_duration_ns, launch_name,
         duration_ns
  FROM copies WHERE launch_start_ns IS NOT NULL
), owned AS (
  SELECT c.run AS run, c.rank AS rank, c.instance AS instance, c.host AS host, c.flop_row AS row,
         CAST(sum(w.duration_ns) AS BIGINT) AS device_ns
  FROM work w JOIN spans c
    ON c.run = w.run AND c.rank = w.rank AND c.instance = w.instance
   AND c.thread = w.launch_thread AND c.start_ns = w.launch_start_ns
   AND c.duration_ns = w.launch_duration_ns AND c.name = w.launch_name
  WHERE c.kind IN ('runtime', 'driver') AND c.flop_row IS NOT NULL
  GROUP BY c.run, c.rank, c.instance, c.host, c.flop_row
)
SELECT s.run, s.rank, s.instance, s.host, s.name AS operator, s.input_shapes, s.input_types,
       count(*) AS runs,
       CAST(sum(s.flops) AS BIGINT) AS flops,
       CAST(sum(s.flop_bytes) AS BIGINT) AS bytes,
       CAST(sum(o.device_ns) AS BIGINT) AS device_ns
FROM spans s LEFT JOIN owned o
  ON o.run = s.run AND o.rank = s.rank AND o.instance = s.instance AND o.row = s.row
WHERE s.flops IS NOT NULL
GROUP BY s.run, s.rank, s.instance, s.host, s.name, s.input_shapes, s.input_types;
