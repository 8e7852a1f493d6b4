import { expect, it } from 'vitest'
import { Catalogue } from '../../src/domain/catalogue.ts'
import { appendNote } from '../../src/mongo/listing.ts'
import { Selection } from '../../src/mongo/selection.ts'
import { VerificationStore } from '../../src/mongo/verification-store.ts'
import { Throttle } from '../../src/throttle/throttle.ts'
import { Verifier } from '../../src/verify/verifier.ts'
import { emptiedClusters, type TwoClusters } from '../apply/two-clusters.ts'

let two: TwoClusters
emptiedClusters((clusters) => {
  two = clusters
})

it('proves also what was catalogued only after everything had been compared once', async () => {
  const late = Array.from({ length: 300 }, (_, _id) => ({ _id }))
  for (const client of [two.sourceClient, two.destinationClient]) {
    const app = client.db('app')
    await app.collection<{ _id: number }>('early').insertMany(late)
    await app.collection<{ _id: number }>('late').insertMany(late)
  }
  // Before the verifier's streams begin, so that neither tells of it.
  await two.destinationClient.db('app').collection<{ _id: number }>('late').deleteOne({ _id: 7 })
  for (const cluster of [two.source, two.destination]) await appendNote(cluster, 'test')
  const catalogue = new Catalogue()
  catalogue.add(await two.entryOf('app', 'early'))
  let hashed = (): void => {}
  const isHashed = new Promise<void>((resolve) => {
    hashed = resolve
  })
  const verifier = new Verifier({
    clusters: two,
    store: new VerificationStore(two.destination, two.context),
    metadata: two.metadata,
    context: two.context,
    selection: new Selection(two.source, { includeNamespaces: null, excludeNamespaces: null }),
    throttle: new Throttle(3),
    epoch: 1,
    catalogue: () => catalogue,
    appliedTime: () => two.source.latest,
    onHashed: hashed,
  })
  const run = verifier.run()
  await isHashed
  catalogue.add(await two.entryOf('app', 'late'))
  const { total, explain } = await verifier.settle()
  const { mismatches } = await explain()
  expect({ total, mismatches }).toMatchObject({
    total: 1,
    mismatches: [{ namespace: 'app.late', kind: 'missing', id: { $numberInt: '7' } }],
  })
  verifier.stop()
  await run
})
