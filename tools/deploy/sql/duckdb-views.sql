-- Views of an archive for DuckDB. Replace fleet by the archive's folder or bucket (s3://bucket/fleet), and
-- restrict the days.
CREATE OR REPLACE TEMP VIEW archive_rows AS
  SELECT * FROM read_parquet('fleet/*/*/*.parquet', hive_partitioning = true,
    hive_types = {'day': VARCHAR, 'shard': VARCHAR}, union_by_name = true)
  WHERE day >= '2000-01-01';
CREATE OR REPLACE TEMP VIEW samples AS
  SELECT host, device, coalesce(serial, '') AS serial, coalesce(model, 'unknown') AS model,
    coalesce(firmware, 'unknown') AS firmware, capacity_bytes, op, CAST(floor(epoch(time)) AS BIGINT) AS time_s,
    interval_s, requests, bytes, errors, mean_ns, whole_granule_bytes,
    host_bytes, host_quantum_bytes, media_bytes, media_quantum_bytes, used_percent
  FROM archive_rows;
CREATE OR REPLACE TEMP VIEW latency_slots AS
  SELECT host, device, serial, model, firmware, op, time_s, hit.slot AS slot, hit.count AS hits
  FROM (
    SELECT host, device, serial, model, firmware, op, CAST(floor(epoch(time)) AS BIGINT) AS time_s,
      unnest(latency) AS hit
    FROM archive_rows
  ) AS one_per_slot;
