-- Write amplification by model and workload (the mean size of the writes of an hour), from sums of bytes. The true
-- growth of a counter between two readings is less than one step away, so that low and high bound the ratio. They
-- do not cover the age of the drive's pages, which is minutes.
WITH hours AS (
  SELECT host, device, serial, model, floor(time_s / 3600) AS hour_number,
    max(host_bytes) AS host_bytes, max(media_bytes) AS media_bytes,
    max(host_quantum_bytes) AS host_step, max(media_quantum_bytes) AS media_step,
    CASE WHEN sum(requests) = 0 THEN 'no writes'
      WHEN sum(bytes) / sum(requests) < 16384 THEN 'writes below 16 KiB'
      WHEN sum(bytes) / sum(requests) < 131072 THEN 'writes of 16 to 128 KiB'
      ELSE 'writes of 128 KiB and more' END AS workload
  FROM samples
  WHERE op = 'write' AND host_bytes IS NOT NULL AND media_bytes IS NOT NULL
  GROUP BY host, device, serial, model, floor(time_s / 3600)
), growths AS (
  SELECT host, device, serial, model, workload, hour_number, host_step, media_step,
    host_bytes - lag(host_bytes) OVER (PARTITION BY host, device, serial ORDER BY hour_number) AS host_growth,
    media_bytes - lag(media_bytes) OVER (PARTITION BY host, device, serial ORDER BY hour_number) AS media_growth
  FROM hours
), counted AS (
  SELECT host, device, serial, model, workload, host_step, media_step, host_growth, media_growth,
    -- Adjacent hours share a reading, so that only the ends of a series of hours have an error.
    CASE WHEN lag(workload) OVER (PARTITION BY host, device, serial ORDER BY hour_number) = workload
      THEN 0 ELSE 1 END AS is_start
  FROM growths WHERE host_growth >= 0 AND media_growth >= 0
), sums AS (
  SELECT model, workload, sum(host_growth) AS host, sum(media_growth) AS media,
    sum(is_start * host_step) AS host_error, sum(is_start * media_step) AS media_error
  FROM counted GROUP BY model, workload
)
SELECT model, workload, host AS host_bytes, media AS media_bytes,
  CASE WHEN host > 0 THEN media / host END AS waf,
  CASE WHEN host > host_error THEN greatest(media - media_error, 0) / (host + host_error) END AS waf_low,
  CASE WHEN host > host_error THEN (media + media_error) / (host - host_error) END AS waf_high
FROM sums ORDER BY model, workload
