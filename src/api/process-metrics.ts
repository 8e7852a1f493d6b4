import { collectDefaultMetrics, Registry } from 'prom-client'

/**
 * Gauges that have the suffix `_total`, which Prometheus reserves for counters. They can be removed, because each is the
 * sum of another gauge of prom-client over its label `type`.
 */
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
