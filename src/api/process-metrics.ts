import { collectDefaultMetrics, Registry } from 'prom-client'

/** Gauges whose names end like those of counters. Others of prom-client show the same figures. */
const misnamed = ['nodejs_active_handles_total', 'nodejs_active_requests_total', 'nodejs_active_resources_total']

let registry: Registry | null = null

/** Metrics of the process and of Node's event loop, with prom-client's names. They are collected from the first call. */
export function processMetrics(): Registry {
  if (registry === null) {
    registry = new Registry()
    collectDefaultMetrics({ register: registry })
    for (const name of misnamed) registry.removeSingleMetric(name)
  }
  return registry
}
