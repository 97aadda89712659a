-- Functions by the time that threads were in them on a core, callees not included, as in
-- `tprof report cpu`.
CREATE VIEW hot_functions AS
SELECT run, rank, instance, host, function, module,
       count(*) AS samples,
       CAST(sum(weight_ns) AS BIGINT) AS self_ns
FROM samples
WHERE state = 'running' AND stack IS NOT NULL
GROUP BY run, rank, instance, host, function, module;
