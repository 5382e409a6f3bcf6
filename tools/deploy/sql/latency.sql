-- The 99.9th percentile of each model and firmware: the quantile of the summed histograms, in its slot from low_ns
-- to high_ns (at most 3.2 % wide). For some rows only, such as reads, add WHERE op = 'read' to the first SELECT.
WITH slots AS (
  SELECT model, firmware, op, slot, sum(hits) AS hits
  FROM latency_slots GROUP BY model, firmware, op, slot
), ranked AS (
  SELECT model, firmware, op, slot,
    sum(hits) OVER (PARTITION BY model, firmware, op ORDER BY slot
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS hits_so_far,
    sum(hits) OVER (PARTITION BY model, firmware, op) AS requests
  FROM slots
), quantiles AS (
  SELECT model, firmware, op, max(requests) AS requests, min(slot) AS slot
  FROM ranked WHERE hits_so_far >= ceil(0.999e0 * requests)
  GROUP BY model, firmware, op
)
SELECT coalesce(model, 'unknown') AS model, coalesce(firmware, 'unknown') AS firmware, op, requests, slot,
  CASE WHEN slot < 32 THEN slot
    ELSE (32 + slot % 32) * power(2e0, floor(slot / 32) - 1) END AS low_ns,
  CASE WHEN slot < 31 THEN slot
    ELSE (32 + (slot + 1) % 32) * power(2e0, floor((slot + 1) / 32) - 1) - 1 END AS high_ns
FROM quantiles ORDER BY model, firmware, op
