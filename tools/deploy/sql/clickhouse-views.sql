-- Views of an archive for ClickHouse and chdb. Replace file('fleet/*/*/*.parquet', Parquet) by s3(...) or by a
-- table, and restrict the days. In the questions, write quantileExactInclusive(0.5)(x) for median(x), because
-- ClickHouse's median() samples.
SET prefer_column_name_to_alias = 1;
SET use_hive_partitioning = 1;
CREATE OR REPLACE VIEW archive_rows AS
  SELECT * FROM file('fleet/*/*/*.parquet', Parquet)
  WHERE toString(day) >= '2000-01-01';
CREATE OR REPLACE VIEW samples AS
  SELECT host, device, coalesce(serial, '') AS serial, coalesce(model, 'unknown') AS model,
    coalesce(firmware, 'unknown') AS firmware, capacity_bytes, op, toInt64(toUnixTimestamp(time)) AS time_s,
    interval_s, requests, bytes, errors, mean_ns, whole_granule_bytes,
    host_bytes, host_quantum_bytes, media_bytes, media_quantum_bytes, used_percent
  FROM archive_rows;
CREATE OR REPLACE VIEW latency_slots AS
  SELECT host, device, serial, model, firmware, op, time_s, hit.1 AS slot, hit.2 AS hits
  FROM (
    SELECT host, device, serial, model, firmware, op, toInt64(toUnixTimestamp(time)) AS time_s,
      arrayJoin(latency) AS hit
    FROM archive_rows
  ) AS one_per_slot;
