import { findSkippedTimeSeries } from '../definitions/skipped-time-series.ts'
import type { Check } from './check.ts'

/** Names the time-series collections that a sync with `timeseries: skip` leaves out. */
export const checkTimeSeries: Check = async ({ source, selection }) => {
  const skipped = await findSkippedTimeSeries(source, selection)
  return skipped.map((name) => ({
    severity: 'warning',
    name: 'TimeSeriesSkipped',
    namespace: name,
    message: `${name} is a time-series collection, which is not synced`,
    remedy: 'transfer it by other means',
  }))
}
