import { expect, it } from 'vitest'
import type { Replication } from '../../src/session/replication.ts'
import { RestoredReplication } from '../../src/session/restored-replication.ts'

/** Returns what an instance knows that has restarted, has loaded the stored state, and coordinates in term 3. */
async function restored(change: (circumstances: Circumstances) => void = () => {}) {
  const first = { filters: 'of the start' } as unknown as Replication
  const loaded: Replication[] = []
  const circumstances = {
    lease: { epoch: 2 },
    coordination: { term: 3, leading: true, isAlone: true },
    peers: { sync: { context: { term: 2 } }, view: { revision: 7 } },
    runs: { renewals: 0, signal: new AbortController().signal, latest: null as Replication | null },
    selected: { filters: 'of the start' },
    stored: {
      preload: async (): Promise<void> => {},
      load: async (): Promise<Replication> => {
        const replication = loaded.length === 0 ? first : ({ filters: 'stored' } as unknown as Replication)
        loaded.push(replication)
        circumstances.runs.latest ??= replication
        return replication
      },
    },
  }
  change(circumstances)
  const { selected, ...parts } = circumstances
  const kept = new RestoredReplication({ ...parts, selection: () => circumstances.selected } as never)
  await kept.load()
  return { kept, circumstances, loaded }
}

interface Circumstances {
  lease: { epoch: number }
  coordination: { term: number; leading: boolean; isAlone: boolean }
  peers: { sync: { context: { term: number } }; view: { revision: number } }
  runs: { renewals: number; signal: AbortSignal; latest: Replication | null }
  selected: { filters: string }
  stored: { preload: () => Promise<void>; load: () => Promise<Replication> }
}

/** The coordinator stores its term before it opens a replication. */
function elected({ peers }: Circumstances): void {
  peers.sync = { context: { term: 3 } }
  peers.view = { revision: 8 }
}

it('an instance that is alone continues once from the state that it has loaded for its figures', async () => {
  const { kept, circumstances, loaded } = await restored()
  elected(circumstances)
  expect(kept.take()).toBe(loaded[0])
  expect(kept.take()).toBeNull()
  expect(loaded).toHaveLength(1)
})

it('a coordinator that has stored its term before continues from a state to which no event was added', async () => {
  const { kept, loaded } = await restored(({ peers }) => Object.assign(peers.sync.context, { term: 3 }))
  expect(kept.take()).toBe(loaded[0])
})

it('the state is loaded again with the stored filters if these are not those of the start', async () => {
  const { kept, circumstances, loaded } = await restored((changed) => {
    changed.stored.preload = async () => {
      changed.selected = { filters: 'stored' }
    }
  })
  elected(circumstances)
  expect(loaded).toHaveLength(2)
  expect(circumstances.runs.latest).toBe(loaded[1])
  expect(kept.take()).toBe(loaded[1])
})

it.each<[string, (circumstances: Circumstances) => void]>([
  ['the lease was lost and taken again', ({ lease }) => Object.assign(lease, { epoch: 3 })],
  ['another instance coordinates', ({ coordination }) => Object.assign(coordination, { leading: false })],
  ['another instance has appeared', ({ coordination }) => Object.assign(coordination, { isAlone: false })],
  ['this instance coordinates in a later term', ({ coordination }) => Object.assign(coordination, { term: 5 })],
  ['an event was stored in addition to the election', ({ peers }) => Object.assign(peers.view, { revision: 9 })],
  ['the work was stopped', ({ runs }) => Object.assign(runs, { signal: AbortSignal.abort() })],
  ['the work was stopped and began again', ({ runs }) => Object.assign(runs, { renewals: 1 })],
])('the state is loaded again if %s', async (_, change) => {
  const { kept, circumstances } = await restored()
  elected(circumstances)
  change(circumstances)
  expect(kept.take()).toBeNull()
})

it.each<[string, Partial<Circumstances['coordination']>]>([
  ['another instance coordinates', { leading: false }],
  ['another instance has a lease', { isAlone: false }],
])('the state is loaded again if %s when it is loaded for the figures', async (_, coordination) => {
  const { kept, circumstances } = await restored((changed) => Object.assign(changed.coordination, coordination))
  Object.assign(circumstances.coordination, { leading: true, isAlone: true })
  elected(circumstances)
  expect(kept.take()).toBeNull()
})
