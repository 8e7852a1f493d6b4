import { BSON, MongoServerError } from 'mongodb'
import { expect, it } from 'vitest'
import { setWriteBlocking } from '../../src/commit/write-blocking.ts'
import { FatalError } from '../../src/domain/errors.ts'
import type { Cluster } from '../../src/mongo/cluster.ts'

/**
 * Somebody else has blocked user writes of a replica set of 8.0.13 or later with a reason. The texts are those of
 * user_writes_recoverable_critical_section_service.cpp in the server's source.
 */

function refusing(message: string, code = 20): Cluster {
  const read = async (_database: string, command: object) => {
    if ('serverStatus' in command) return { repl: { userWriteBlockMode: 1 } }
    throw new MongoServerError({ message, code, codeName: 'IllegalOperation' })
  }
  return { name: 'cluster1', read, fence: () => {} } as unknown as Cluster
}

const released =
  'Cannot release user writes critical section with different reason than the already existing one. ' +
  'reason: Unspecified, current: DiskUseThresholdExceeded'
const acquired =
  'Cannot acquire user writes critical section with different options than the already existing one. ' +
  'reason: Unspecified, current: ClusterToClusterMigrationInProgress'

it.each([
  ['lifted', false, released, 'allowing writes', 'DiskUseThresholdExceeded'],
  ['set', true, acquired, 'blocking writes', 'ClusterToClusterMigrationInProgress'],
])(
  'if a block with a reason of somebody else is %s, setWriteBlocking fails with an error that names the reason',
  async (...given) => {
    const [, blocked, text, step, reason] = given
    const error = await setWriteBlocking(refusing(text), blocked).catch((caught: unknown) => caught)
    expect(error).toBeInstanceOf(FatalError)
    expect(error).toMatchObject({ failure: 'WritesBlockedByAnother' })
    const { message } = error as FatalError
    expect(message).toContain(`${step}: user writes on cluster1 are blocked with the reason ${reason}`)
    expect(message).toContain(`db.adminCommand({ setUserWriteBlockMode: 1, global: false, reason: "${reason}" })`)
    expect(message).toContain('then send resume')
  },
)

it.each([
  ['another refusal of the command', 'setUserWriteBlockMode is not supported here', 20],
  ['a transient error', 'reason: Unspecified, current: DiskUseThresholdExceeded', 11600],
])('%s is thrown unchanged', async (_what, text, code) => {
  await expect(setWriteBlocking(refusing(text, code), false)).rejects.toMatchObject({ code, message: text })
})

it.each([true, false])(
  'if the lease is lost before the command is sent, no block is set or lifted (%s)',
  async (blocked) => {
    const sent: object[] = []
    let isLost = false
    const read = async (_database: string, command: object) => {
      if ('serverStatus' in command) return { repl: { userWriteBlockMode: 1 } }
      isLost = true // while the driver selects a server and a connection
      BSON.serialize(command)
      sent.push(command)
      return {}
    }
    const fence = (): void => {
      if (isLost) throw new Error('the lease is lost')
    }
    const destination = { name: 'cluster1', read, fence } as unknown as Cluster
    await expect(setWriteBlocking(destination, blocked)).rejects.toThrow('the lease is lost')
    const source = { ...destination, name: 'cluster0', fence: () => {} } as unknown as Cluster
    isLost = false
    await expect(setWriteBlocking(source, blocked, destination)).rejects.toThrow('the lease is lost')
    expect(sent).toEqual([])
  },
)
