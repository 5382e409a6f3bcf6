-- Days until a drive has used its rated endurance if the load of these days continues: between early_days and
-- late_days. used_percent is a whole number, less than 1 from the wear. If the drive counts NAND bytes, its percentage
-- and its bytes so far give the rated bytes, and the growth of the bytes gives the pace; else the percentage must
-- have grown by 2. late_days is NULL without an upper bound.
WITH ends AS (
  SELECT host, device, serial, model, firmware, (max(time_s) - min(time_s)) / 86400e0 AS days,
    max(used_percent) AS used, max(used_percent) - min(used_percent) AS used_growth,
    max(media_bytes) AS media, max(media_bytes) - min(media_bytes) AS media_growth,
    max(media_quantum_bytes) AS media_step
  FROM samples WHERE op = 'write' AND used_percent IS NOT NULL
  GROUP BY host, device, serial, model, firmware
), methods AS (
  SELECT host, device, serial, model, firmware, days, used, used_growth, media, media_growth, media_step,
    CASE WHEN days <= 0 THEN 'one reading is too few'
      WHEN used >= 100 THEN 'its rated endurance is used'
      WHEN media IS NOT NULL AND used >= 2 AND media_growth > media_step THEN 'by NAND bytes'
      WHEN used_growth >= 2 THEN 'by percentage'
      ELSE 'it has worn too little' END AS method
  FROM ends
)
SELECT host, device, serial, model, firmware, used AS used_percent, method,
  CASE method
    WHEN 'by NAND bytes'
      THEN greatest(99e0 - used, 0e0) * media / (used + 1) / ((media_growth + media_step) / days)
    WHEN 'by percentage' THEN greatest(99e0 - used, 0e0) * days / (used_growth + 1)
    WHEN 'its rated endurance is used' THEN 0e0
  END AS early_days,
  CASE method
    WHEN 'by NAND bytes'
      THEN (101e0 - used) * (media + media_step) / (used - 1) / ((media_growth - media_step) / days)
    WHEN 'by percentage' THEN (101e0 - used) * days / (used_growth - 1)
    WHEN 'its rated endurance is used' THEN 0e0
  END AS late_days
FROM methods ORDER BY early_days, host, device
