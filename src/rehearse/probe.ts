import type { Db, MongoClient } from 'mongodb'
import { errorText } from '../domain/error-text.ts'
import type { RehearsalCluster } from './rehearsal-cluster.ts'

/** Tests one property of the server on which tandem relies. Each probe uses collections of its own. */
export interface Probe {
  name: string
  side: 'source' | 'destination'
  /** Why tandem relies on the property. */
  reason: string
  /** The first major version with this property. Older servers are not probed. */
  since?: number
  /**
   * Returns the server's answer. Throws a `ProbeFailure` or an error of the driver if the server does not have the
   * property.
   */
  run(place: ProbePlace): Promise<string>
}

export interface ProbePlace {
  client: MongoClient
  /** The rehearsal's database for probes. */
  db: Db
  /** Major version of the server's release. */
  major: number
}

export interface ProbeResult {
  name: string
  side: 'source' | 'destination'
  reason: string
  passed: boolean
  /** The server's answer, or the error. */
  answer: string
}

export class ProbeFailure extends Error {
  override readonly name = 'ProbeFailure'
}

/** Throws a ProbeFailure that quotes the answer unless `holds` is true. */
export function expectAnswer(holds: boolean, expected: string, answer: unknown): asserts holds {
  if (!holds) throw new ProbeFailure(`expected ${expected}; the server answered ${quoted(answer)}`)
}

export const quoted = (answer: unknown): string => JSON.stringify(answer)?.slice(0, 300) ?? String(answer)

/** Runs the probes one after another, because several of them read all changes in their common database. */
export async function runProbes(
  probes: readonly Probe[],
  clusters: Record<'source' | 'destination', RehearsalCluster>,
  { database, signal }: { database: string; signal: AbortSignal },
): Promise<ProbeResult[]> {
  const results: ProbeResult[] = []
  for (const { name, side, reason, since = 0, run } of probes) {
    const { client, major } = clusters[side]
    if (major < since) continue
    signal.throwIfAborted()
    try {
      const answer = await run({ client, db: client.db(database), major })
      results.push({ name, side, reason, passed: true, answer })
    } catch (error) {
      // The documents of a probe contain no user data, so its failure may quote them.
      const answer = error instanceof ProbeFailure ? error.message : errorText(error)
      results.push({ name, side, reason, passed: false, answer })
    }
  }
  return results
}
