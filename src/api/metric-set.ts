import { Counter, Gauge, type Metric, Registry } from 'prom-client'
import type { Durations } from '../domain/durations.ts'

/** A value, or a value with labels. Null or undefined while it is unknown. */
export type Sample = number | null | undefined | { labels: Record<string, string>; value: number }

/** The metrics of one answer. They belong to a new registry for each request, because unknown values must be absent. */
export class MetricSet {
  readonly registry = new Registry()

  gauge(name: string, help: string, ...samples: Sample[]): void {
    this.#add(Gauge, name, help, samples)
  }

  counter(name: string, help: string, ...samples: Sample[]): void {
    this.#add(Counter, name, help, samples)
  }

  /** @param unitMS the unit of the metric in milliseconds: Prometheus' convention is 1,000 */
  histogram(
    name: string,
    help: string,
    unitMS: number,
    ...measured: { labels: Record<string, string>; durations: Durations }[]
  ): void {
    if (measured.length === 0) return
    const values = measured.flatMap(({ labels, durations }) => [
      ...durations.cumulative.map(({ boundMS, count }) => ({
        metricName: `${name}_bucket`,
        labels: { ...labels, le: Number.isFinite(boundMS) ? boundMS / unitMS : '+Inf' },
        value: count,
      })),
      { metricName: `${name}_sum`, labels, value: durations.sumMS / unitMS },
      { metricName: `${name}_count`, labels, value: durations.count },
    ])
    // prom-client's own histogram accepts only single observations, but these durations are already counted.
    const metric = { name, help, type: 'histogram', aggregator: 'sum', get: async () => ({ ...metric, values }) }
    this.registry.registerMetric(metric as unknown as Metric)
  }

  #add(Kind: typeof Gauge | typeof Counter, name: string, help: string, samples: Sample[]): void {
    const known = samples
      .filter((one) => one != null)
      .map((one) => (typeof one === 'number' ? { labels: {}, value: one } : one))
    if (known.length === 0) return
    const labelNames = [...new Set(known.flatMap(({ labels }) => Object.keys(labels)))]
    const metric = new Kind({ name, help, labelNames, registers: [this.registry] })
    for (const { labels, value } of known) metric.inc(labels, value)
  }
}
