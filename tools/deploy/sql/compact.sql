-- Compaction of a day by DuckDB: the files of all hosts of a shard become one, sorted, with row groups of 20,480
-- rows. Most row groups have one operation, so that questions about reads skip the histograms of writes. The day
-- of a large fleet is compacted shard by shard: replace shard=* by shard=00 and so on. Replace the folders and the
-- day; remove the day from fleet when the copy is complete.
COPY (
  SELECT * FROM read_parquet('fleet/day=2026-11-29/shard=*/*.parquet', hive_partitioning = true,
    hive_types = {'day': VARCHAR, 'shard': VARCHAR}, union_by_name = true)
  ORDER BY shard, model, op, host, device, time
) TO 'compacted' (
  FORMAT parquet, COMPRESSION zstd, PARTITION_BY (day, shard), ROW_GROUP_SIZE 20480,
  FILENAME_PATTERN 'compacted-{uuid}', OVERWRITE_OR_IGNORE
);
