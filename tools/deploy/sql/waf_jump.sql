-- Drives with a write amplification that certainly rose by half or more: the lower bound of the last quarter of the
-- time is above 1.5 times the upper bound of the first half.
WITH ends AS (
  SELECT min(time_s) AS first_s, max(time_s) AS last_s FROM samples
), parts AS (
  SELECT host, device, serial, model, firmware,
    CASE WHEN time_s <= first_s + (last_s - first_s) / 2 THEN 'before' ELSE 'now' END AS part,
    max(host_bytes) - min(host_bytes) AS host_growth, max(media_bytes) - min(media_bytes) AS media_growth,
    max(host_quantum_bytes) AS host_step, max(media_quantum_bytes) AS media_step
  FROM samples CROSS JOIN ends
  WHERE op = 'write' AND host_bytes IS NOT NULL AND media_bytes IS NOT NULL
    AND (time_s <= first_s + (last_s - first_s) / 2 OR time_s >= first_s + (last_s - first_s) * 0.75e0)
  GROUP BY host, device, serial, model, firmware,
    CASE WHEN time_s <= first_s + (last_s - first_s) / 2 THEN 'before' ELSE 'now' END
), bounds AS (
  SELECT host, device, serial, model, firmware, part,
    (media_growth - media_step) / (host_growth + host_step) AS low,
    (media_growth + media_step) / (host_growth - host_step) AS high
  FROM parts WHERE host_growth > 100 * host_step AND media_growth > 100 * media_step
)
SELECT n.host AS host, n.device AS device, n.serial AS serial, n.model AS model, n.firmware AS firmware,
  b.high AS waf_before_high, n.low AS waf_now_low
FROM bounds AS n JOIN bounds AS b ON n.host = b.host AND n.device = b.device AND n.serial = b.serial
WHERE n.part = 'now' AND b.part = 'before' AND n.low > 1.5e0 * b.high
ORDER BY host, device
