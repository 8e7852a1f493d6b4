import type { Document } from 'mongodb'
import { afterEach, beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest'
import { MongoLiveness } from '../../src/coordination/mongo-liveness.ts'
import { PeerCommands } from '../../src/coordination/peer-commands.ts'
import { deferred } from '../../src/domain/deferred.ts'
import { RefusedError } from '../../src/domain/errors.ts'
import type { PeerCommand } from '../../src/domain/peer-command.ts'
import { CommandStore } from '../../src/mongo/command-store.ts'
import { type TestContext, testContext } from '../mongo/clusters.ts'
import { oneSet } from '../mongo/one-set.ts'
import { beatOf } from './liveness-stores.ts'

/** Commands that one instance passes on to all, through a real metadata database. */

const one = oneSet()
const patience = { timeout: 20_000, interval: 20 }
const accepted = { success: true }
const members: Member[] = []

beforeEach(async () => {
  await one.client.db('tandem_internal').dropDatabase()
})
afterEach(() => {
  for (const { context, looking } of members.splice(0)) {
    clearInterval(looking)
    context.stop()
  }
})

interface Member {
  performed: PeerCommand[]
  /** Lines of its log. */
  logged: { message: string; fields: unknown }[]
  commands: PeerCommands
  context: TestContext
  looking: NodeJS.Timeout | undefined
}

interface MemberOptions {
  incarnation?: string
  generation?: number
  patienceMS?: number
  perform?: (command: PeerCommand) => Promise<void>
  /** Asks for what is new, as an instance does once a second. */
  looks?: boolean
}

/** An instance that is alive, and notes what it performs. */
async function member(id: string, options: MemberOptions = {}): Promise<Member> {
  const { incarnation = `${Buffer.from(id).toString('hex')}1`, generation = 0, patienceMS = 20_000 } = options
  const { perform = async () => {}, looks = true } = options
  const liveness = new MongoLiveness(one.cluster)
  await liveness.publish(beatOf(id, { incarnation }))
  const performed: PeerCommand[] = []
  const session = { commands: new CommandStore(one.cluster), liveness, record: { generation } }
  const logged: Member['logged'] = []
  const context = { ...testContext(), journal: (message: string, fields: unknown) => logged.push({ message, fields }) }
  const commands = new PeerCommands({
    id,
    incarnation,
    current: { session },
    perform: async ({ command }) => {
      performed.push(command)
      await perform(command)
    },
    context,
    patienceMS,
  })
  const looking = looks ? setInterval(() => commands.poll(), 20) : undefined
  const made = { performed, logged, commands, context, looking }
  members.push(made)
  return made
}

const stored = () => one.client.db('tandem_internal').collection('commands').countDocuments()

describe('a command given to all', () => {
  it('is performed once by each, and answered when all have answered', async () => {
    const [a, b, c] = await Promise.all([member('a'), member('b.$x'), member('c')])
    for (const command of ['pause', 'resume', 'commit', 'reverse'] as const) {
      const answers = await b.commands.give({ command })
      expect([...answers]).toEqual([
        ['a', accepted],
        ['b.$x', accepted],
        ['c', accepted],
      ])
    }
    for (const { performed } of [a, b, c]) expect(performed).toEqual(['pause', 'resume', 'commit', 'reverse'])
    expect(await stored()).toBe(0)
  })

  it.each(['repair', 'close', 'constructor', 'nothing', 42])(
    'is not performed when a record names %j, which no instance sends: it is refused, and the log has it as an error',
    async (command) => {
      const unhandled = vi.fn()
      process.on('unhandledRejection', unhandled)
      onTestFinished(() => void process.off('unhandledRejection', unhandled))
      // As an instance looks it up among its own methods: what it does not have throws before there is a promise.
      const methods = { repair: vi.fn(async () => {}), close: vi.fn(async () => {}) }
      const perform = (name: string): Promise<void> => methods[name as keyof typeof methods]()
      const { context, logged } = await member('a', { perform })
      const records = one.client.db('tandem_internal').collection<Document & { _id: string }>('commands')
      const to = [{ id: 'a', incarnation: '611' }]
      const rest = { schemaVersion: 1, generation: 0, closed: false, taken: {}, answers: {}, givenAt: new Date() }
      await records.insertOne({ _id: 'planted', command, to, ...rest })
      await vi.waitFor(async () => {
        expect(await records.findOne({ _id: 'planted' })).toMatchObject({
          answers: { '611': { success: false, error: 'InvalidRequest' } },
        })
      }, patience)
      expect(methods.repair).not.toHaveBeenCalled()
      expect(methods.close).not.toHaveBeenCalled()
      expect(unhandled).not.toHaveBeenCalled()
      expect(logged).toEqual([
        { message: 'command failed', fields: { command: null, error: expect.stringContaining('(_id planted)') } },
      ])
      expect(context.retried).toEqual([])
    },
  )

  it('is refused by an instance in its own words, and an unexpected error is only named', async () => {
    const a = await member('a')
    const refusal = new RefusedError(
      'WrongState',
      '$pause is accepted in RUNNING, not at mongodb://root:hunter2@db.test/',
    )
    const b = await member('b', { perform: () => Promise.reject(refusal) })
    const c = await member('c', { perform: () => Promise.reject(new Error('hunter2')) })
    const answers = await a.commands.give({ command: 'pause' })
    expect(answers.get('a')).toEqual(accepted)
    expect(answers.get('b')).toMatchObject({
      success: false,
      error: 'WrongState',
      errorDescription: expect.stringMatching(/^\$pause is/),
    })
    expect(answers.get('c')).toMatchObject({ success: false, error: 'InternalError' })
    expect(JSON.stringify([...answers])).not.toContain('hunter2')
    expect(b.performed.length + c.performed.length).toBe(2)
    expect(b.logged).toEqual([])
    const error = expect.stringMatching(/^Error: hunter2\n +at /)
    expect(c.logged).toEqual([{ message: 'command failed', fields: { command: 'pause', error } }])
    expect(c.context.retried).toEqual([])
  })

  it('is not for an instance that was started, or started again, after it was given', async () => {
    const slow = deferred<void>()
    const a = await member('a', { perform: () => slow.promise })
    const b = await member('b', { looks: false })
    const answers = a.commands.give({ command: 'commit' })
    await vi.waitFor(() => expect(a.performed).toEqual(['commit']), patience)
    const again = await member('b', { incarnation: 'b2' })
    const late = await member('late')
    slow.resolve()
    // The first life of b is over, so nobody waits for it.
    expect([...(await answers)]).toMatchObject([
      ['a', accepted],
      ['b', { success: false, error: 'NoAnswer', errorDescription: expect.stringMatching(/^did not pick up/) }],
    ])
    for (const { performed } of [b, again, late]) expect(performed).toEqual([])
  })

  it('is not performed any more by whoever looks only after it was answered for', async () => {
    const a = await member('a', { patienceMS: 300 })
    const deaf = await member('deaf', { looks: false })
    expect((await a.commands.give({ command: 'commit' })).get('deaf')).toMatchObject({ error: 'NoAnswer' })
    deaf.commands.poll()
    await a.commands.give({ command: 'pause' }).catch(() => {})
    expect(deaf.performed).toEqual([])
  })

  it('says of an instance that is still at it that it has taken the command', async () => {
    const a = await member('a', { patienceMS: 300 })
    const slow = deferred<void>()
    await member('slow', { perform: () => slow.promise })
    expect((await a.commands.give({ command: 'pause' })).get('slow')).toMatchObject({
      error: 'NoAnswer',
      errorDescription: expect.stringMatching(/^took the command and did not finish/),
    })
    slow.resolve()
  })

  it('of another generation of the sync is nothing to an instance', async () => {
    const a = await member('a', { patienceMS: 300 })
    const turned = await member('turned', { generation: 1 })
    expect((await a.commands.give({ command: 'reverse' })).get('turned')).toMatchObject({ error: 'NoAnswer' })
    expect(turned.performed).toEqual([])
  })

  it('is too old to be taken after its giver has died, and removed by the next one', async () => {
    const a = await member('a')
    const commands = new CommandStore(one.cluster)
    await commands.give('orphan', { command: 'commit' }, 0, [{ id: 'a', incarnation: '611' }])
    const collection = one.client.db('tandem_internal').collection<{ _id: string; givenAt: Date }>('commands')
    await collection.updateOne({ _id: 'orphan' }, [{ $set: { givenAt: { $subtract: ['$$NOW', 20_001] } } }])
    expect(await commands.take('orphan', '611', 20_000)).toBe(false)
    await collection.updateOne({ _id: 'orphan' }, [{ $set: { givenAt: { $subtract: ['$$NOW', 700_000] } } }])
    expect((await a.commands.give({ command: 'pause' })).get('a')).toEqual(accepted)
    expect(a.performed).toEqual(['pause'])
    expect(await stored()).toBe(0)
  })
})
