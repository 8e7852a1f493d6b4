import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { MongoClient } from 'mongodb'
import { expect, it, vi } from 'vitest'
import { oneSet } from '../mongo/one-set.ts'
import { inPod, podsAreAllowed } from '../support/pod.ts'
import { startReplicaSet } from '../support/replica-set.ts'
import { startSteppedClock } from '../support/stepped-clock.ts'
import { startLateLine } from './late-line.ts'

const run = promisify(execFile)
const one = oneSet()
const patience = { timeout: 10_000, interval: 50 }

it.runIf(process.platform === 'linux')(
  'a server follows each step of its clock and continues to accept writes',
  async () => {
    const clock = await startSteppedClock()
    await using set = await startReplicaSet({ clock })
    await using client = await MongoClient.connect(set.uri)
    const collection = client.db('app').collection<{ _id: number }>('things')
    for (const [_id, seconds] of [30, -30, -30].entries()) {
      clock.step(seconds)
      await vi.waitFor(async () => {
        const { localTime } = await client.db('admin').command({ hello: 1 })
        expect(Math.abs(localTime.getTime() - Date.now() - clock.aheadSeconds * 1_000)).toBeLessThan(5_000)
      }, patience)
      await collection.insertOne({ _id }, { writeConcern: { w: 'majority' } })
    }
    expect(await collection.countDocuments()).toBe(3)
    clock.close()
  },
)

it('a late line delivers what its client sent before it lost the connection', async () => {
  const line = await startLateLine(one.set.hosts[0] as string)
  await using client = new MongoClient(line.uri, { retryWrites: false })
  const through = client.db('app').collection<{ _id: number; filling?: string }>('late')
  await through.insertOne({ _id: 1 })
  const late = through.insertOne({ _id: 2, filling: 'x'.repeat(4_000) }).catch(() => 'given up')
  await line.hold()
  await line.cut()
  expect(await late).toBe('given up')
  await through.insertOne({ _id: 3 })
  const present = async () => (await through.find().sort({ _id: 1 }).toArray()).map(({ _id }) => _id)
  expect(await present()).toEqual([1, 3])
  await line.deliver()
  expect(await present()).toEqual([1, 2, 3])
  await client.close()
  await line.close()
})

it.runIf(await podsAreAllowed())('two pods have the same host name and pid in separate namespaces', async () => {
  const readIdentity = async (): Promise<string[]> => {
    const [command, args] = inPod('tandem-0', ['sh', '-c', 'hostname; echo $$; readlink /proc/self/ns/pid; sleep 0.5'])
    return (await run(command, args)).stdout.trim().split('\n')
  }
  const [first, second] = (await Promise.all([readIdentity(), readIdentity()])) as [string[], string[]]
  expect([first.slice(0, 2), second.slice(0, 2)]).toEqual([
    ['tandem-0', '1'],
    ['tandem-0', '1'],
  ])
  expect(first[2]).not.toBe(second[2])
})
