-- Views of an archive for Spark. Replace fleet by the archive's folder or bucket (s3a://bucket/fleet), and restrict
-- the days.
SET TIME ZONE 'UTC';
SET spark.sql.sources.partitionColumnTypeInference.enabled = false;
CREATE OR REPLACE TEMPORARY VIEW files USING parquet OPTIONS (path 'fleet');
CREATE OR REPLACE TEMPORARY VIEW archive_rows AS
  SELECT * FROM files
  WHERE day >= '2000-01-01';
CREATE OR REPLACE TEMPORARY VIEW samples AS
  SELECT host, device, coalesce(serial, '') AS serial, coalesce(model, 'unknown') AS model,
    coalesce(firmware, 'unknown') AS firmware, capacity_bytes, op,
    unix_seconds(CAST(time AS TIMESTAMP)) AS time_s,
    interval_s, requests, bytes, errors, mean_ns, whole_granule_bytes,
    host_bytes, host_quantum_bytes, media_bytes, media_quantum_bytes, used_percent
  FROM archive_rows;
CREATE OR REPLACE TEMPORARY VIEW latency_slots AS
  SELECT host, device, serial, model, firmware, op, time_s, hit.slot AS slot, hit.count AS hits
  FROM (
    SELECT host, device, serial, model, firmware, op, unix_seconds(CAST(time AS TIMESTAMP)) AS time_s,
      explode(latency) AS hit
    FROM archive_rows
  ) AS one_per_slot;
