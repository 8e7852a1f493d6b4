/** Parts of docs/api.md that the OpenAPI document does not contain: the command on the command line and an example body. */
export interface Example {
  cli: string
  body?: unknown
}

const sync = { source: 'cluster0', destination: 'cluster1' }

const examples: Record<string, Example> = {
  start: {
    cli: '`tandem start`',
    body: { ...sync, reversible: true, enableUserWriteBlocking: 'sourceAndDestination' },
  },
  check: { cli: '`tandem check`', body: sync },
  pause: { cli: '`tandem pause`' },
  resume: { cli: '`tandem resume`' },
  commit: { cli: '`tandem commit`' },
  abort: { cli: '`tandem abort`' },
  reverse: { cli: '`tandem reverse`' },
  progress: { cli: '`tandem progress`' },
  instances: { cli: '`tandem instances`' },
  collections: { cli: '`tandem collections`' },
  limits: { cli: '`tandem limits`' },
  limit: { cli: '`tandem limit`', body: { bytesPerSecond: 20_000_000, writeConcurrency: null } },
  mismatches: { cli: '`tandem mismatches`' },
  audit: { cli: '`tandem audit`' },
  repair: { cli: '`tandem repair`' },
  filter: { cli: '`tandem filter`' },
  resync: { cli: '`tandem resync`', body: { namespaces: [{ database: 'app', collection: 'things' }] } },
}

export function exampleOf(operationId: string): Example {
  return examples[operationId] ?? { cli: '' }
}
