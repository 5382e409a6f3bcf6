-- Drives that are slower than others of their model at the same load, on at least half of a day. Each quarter of an
-- hour of a drive is compared with those of all drives of its model and operation with a similar rate (bins of the
-- logarithm): slow means 3.09 standard deviations above the median, by the median absolute deviation. A threshold on
-- the latency alone would find busy drives instead.
WITH quarters AS (
  SELECT host, device, serial, model, firmware, op, floor(time_s / 900) AS quarter,
    sum(requests) AS requests, sum(interval_s) AS seconds, sum(requests * mean_ns) / sum(requests) AS mean_ns
  FROM samples WHERE op IN ('read', 'write') AND requests > 0
  GROUP BY host, device, serial, model, firmware, op, floor(time_s / 900)
), loads AS (
  SELECT host, device, serial, model, firmware, op, quarter, ln(mean_ns) AS latency,
    floor(4 * ln(requests / seconds)) AS load_bin
  FROM quarters WHERE requests >= 100
), centres AS (
  SELECT model, op, load_bin, median(latency) AS centre, count(*) AS quarters_in_bin
  FROM loads GROUP BY model, op, load_bin
), distances AS (
  SELECT l.host AS host, l.device AS device, l.serial AS serial, l.model AS model, l.firmware AS firmware,
    l.op AS op, l.quarter AS quarter, l.load_bin AS load_bin, l.latency - c.centre AS distance
  FROM loads AS l JOIN centres AS c ON l.model = c.model AND l.op = c.op AND l.load_bin = c.load_bin
  WHERE c.quarters_in_bin >= 100
), spreads AS (
  SELECT model, op, load_bin, 1.4826e0 * median(abs(distance)) AS deviation
  FROM distances GROUP BY model, op, load_bin
), days AS (
  SELECT d.host AS host, d.device AS device, d.serial AS serial, d.model AS model, d.firmware AS firmware,
    d.op AS op, floor(d.quarter / 96) AS day_number, count(*) AS quarters,
    sum(CASE WHEN d.distance > 3.09e0 * s.deviation THEN 1 ELSE 0 END) AS slow_quarters,
    exp(median(d.distance)) AS times_slower
  FROM distances AS d
  JOIN spreads AS s ON d.model = s.model AND d.op = s.op AND d.load_bin = s.load_bin
  GROUP BY d.host, d.device, d.serial, d.model, d.firmware, d.op, floor(d.quarter / 96)
)
SELECT host, device, serial, model, firmware, op, day_number, quarters, slow_quarters, times_slower
FROM days WHERE quarters >= 24 AND 2 * slow_quarters >= quarters
ORDER BY host, device, op, day_number
