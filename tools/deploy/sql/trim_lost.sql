-- Drives whose trims get lost: discards fail; most of their bytes are not whole granules, so that the drive keeps
-- them; or none arrives although 1 GiB was written and most drives of the model get discards.
WITH drives AS (
  SELECT host, device, serial, model, firmware,
    sum(CASE WHEN op = 'write' THEN bytes ELSE 0 END) AS written_bytes,
    sum(CASE WHEN op = 'discard' THEN bytes ELSE 0 END) AS discarded_bytes,
    sum(CASE WHEN op = 'discard' THEN coalesce(errors, 0) ELSE 0 END) AS failed_discards,
    sum(CASE WHEN op = 'discard' AND whole_granule_bytes IS NOT NULL
      THEN bytes - whole_granule_bytes ELSE 0 END) AS kept_bytes
  FROM samples GROUP BY host, device, serial, model, firmware
), models AS (
  SELECT model, count(*) AS drives_of_model,
    sum(CASE WHEN discarded_bytes > 0 THEN 1 ELSE 0 END) AS drives_with_discards
  FROM drives GROUP BY model
), judged AS (
  SELECT d.host AS host, d.device AS device, d.serial AS serial, d.model AS model, d.firmware AS firmware,
    d.written_bytes AS written_bytes, d.discarded_bytes AS discarded_bytes, d.failed_discards AS failed_discards,
    d.kept_bytes AS kept_bytes,
    CASE WHEN d.failed_discards > 0 THEN 'discards fail'
      WHEN d.discarded_bytes > 0 AND 2 * d.kept_bytes > d.discarded_bytes THEN 'discards miss the granule'
      WHEN d.discarded_bytes = 0 AND d.written_bytes >= 1073741824
        AND 2 * m.drives_with_discards > m.drives_of_model THEN 'no discard arrives' END AS reason
  FROM drives AS d JOIN models AS m ON d.model = m.model
)
SELECT host, device, serial, model, firmware, reason, written_bytes, discarded_bytes, failed_discards, kept_bytes
FROM judged WHERE reason IS NOT NULL ORDER BY host, device
