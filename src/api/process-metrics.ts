import { collectDefaultMetrics, Registry } from 'prom-client'

/** Gauges with the suffix `_total`, which is for counters. prom-client's gauges by type add up to the same figures. */
const misnamed = ['nodejs_active_handles_total', 'nodejs_active_requests_total', 'nodejs_active_resources_total']

let registry: Registry | null = null

/** Returns prom-client's default metrics of the process and of Node.js. Their collection begins with the first call. */
export function processMetrics(): Registry {
  if (registry === null) {
    registry = new Registry()
    collectDefaultMetrics({ register: registry })
    for (const name of misnamed) registry.removeSingleMetric(name)
  }
  return registry
}
