import { expect, it } from 'vitest'
import { syncMachine } from '../../machines/sync.ts'
import { freshSync, type SyncContext } from '../../machines/sync-context.ts'
import type { SyncSnapshot } from '../../machines/sync-view.ts'
import { InitialisedReplication } from '../../src/session/initialised-replication.ts'
import type { Replication } from '../../src/session/replication.ts'

type State = Parameters<typeof syncMachine.resolveState>[0]['value']
const syncIn = (value: State, context: Partial<SyncContext> = {}): SyncSnapshot =>
  syncMachine.resolveState({ value, context: { ...freshSync, term: 3, ...context } })

const replication = {} as Replication

/** Returns what a coordinator in term 3 knows after it has created all collections, and the replication that it keeps. */
function initialised() {
  const circumstances = {
    lease: { epoch: 2 },
    coordination: { term: 3, leading: true },
    peers: { sync: syncIn('initialising'), worked: { term: 3, attempt: 0, convergences: 0 } },
    runs: { renewals: 1, signal: new AbortController().signal },
  }
  const kept = new InitialisedReplication(circumstances)
  kept.keep(replication)
  circumstances.peers.sync = syncIn('replicating')
  return { kept, circumstances }
}

it('the replication that has created all collections also copies them, once', () => {
  const { kept } = initialised()
  expect(kept.take()).toBe(replication)
  expect(kept.take()).toBeNull()
})

type Circumstances = ReturnType<typeof initialised>['circumstances']
it.each<[string, (circumstances: Circumstances) => void]>([
  ['the lease was lost and taken again', ({ lease }) => Object.assign(lease, { epoch: 3 })],
  ['another instance coordinates', ({ coordination }) => Object.assign(coordination, { leading: false })],
  ['this instance coordinates in a later term', ({ coordination }) => Object.assign(coordination, { term: 5 })],
  [
    'another coordinator has stored its term',
    ({ peers }) => Object.assign(peers, { sync: syncIn('replicating', { term: 4 }) }),
  ],
  ['the sync does not replicate', ({ peers }) => Object.assign(peers, { sync: syncIn('initialising') })],
  ['collections converge', ({ peers }) => Object.assign(peers, { sync: syncIn('replicating', { convergences: 1 }) })],
  ['the work was stopped', ({ runs }) => Object.assign(runs, { signal: AbortSignal.abort() })],
  ['the work was stopped and began again', ({ runs }) => Object.assign(runs, { renewals: 2 })],
])('the stored state is loaded again if %s', (_, change) => {
  const { kept, circumstances } = initialised()
  change(circumstances)
  expect(kept.take()).toBeNull()
})
