-- Device memory that each allocator has given out, after each block that it gave out or took back.
-- This is the total that the allocator recorded, or else the sum of the recorded blocks.
CREATE VIEW memory_curve AS
SELECT run, rank, instance, host, process, device, allocator, time_ns,
       coalesce(total_allocated_bytes,
         CAST(sum(CASE WHEN free THEN -abs(bytes) ELSE abs(bytes) END) OVER (
           PARTITION BY run, rank, instance, host, process, device, allocator
           ORDER BY time_ns ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS BIGINT)) AS bytes,
       total_reserved_bytes AS reserved_bytes
FROM device_allocations;
