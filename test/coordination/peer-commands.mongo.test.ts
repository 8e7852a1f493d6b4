import { type Document, Timestamp } from 'mongodb'
import { afterEach, beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest'
import { MongoLiveness } from '../../src/coordination/mongo-liveness.ts'
import { type CommandedSession, PeerCommands } from '../../src/coordination/peer-commands.ts'
import { deferred } from '../../src/domain/deferred.ts'
import { RefusedError } from '../../src/domain/errors.ts'
import { metadataDatabase } from '../../src/domain/namespace.ts'
import type { GivenCommand, PeerCommand } from '../../src/domain/peer-command.ts'
import { CommandStore } from '../../src/mongo/command-store.ts'
import { type TestContext, testContext } from '../mongo/clusters.ts'
import { oneSet } from '../mongo/one-set.ts'
import { heartbeatOf } from './liveness-stores.ts'

/** One instance passes a command on to all instances, through a real metadata database. */

const one = oneSet()
const patience = { timeout: 20_000, interval: 20 }
const accepted = { success: true }
const members: Member[] = []

beforeEach(async () => {
  await one.client.db(metadataDatabase).dropDatabase()
})
afterEach(() => {
  for (const { context, polling } of members.splice(0)) {
    clearInterval(polling)
    context.stop()
  }
})

interface Member {
  performed: PeerCommand[]
  /** The last command as it was received. */
  received: () => GivenCommand | null
  /** The sender in the record of each performed command. */
  senders: (string | null)[]
  /** The log lines of the instance. */
  logged: { message: string; fields: unknown }[]
  commands: PeerCommands
  /** The session in which commands are received. A test may replace it. */
  current: { session: CommandedSession | null }
  context: TestContext
  polling: NodeJS.Timeout | undefined
}

interface MemberOptions {
  incarnation?: string
  generation?: number
  patienceMS?: number
  perform?: (command: PeerCommand) => Promise<void>
  /** True (default) if the member polls for commands, every 20 ms. A real instance polls once a second. */
  polls?: boolean
}

/** Creates a live instance that records the commands that it performs. */
async function member(id: string, options: MemberOptions = {}): Promise<Member> {
  const { incarnation = `${Buffer.from(id).toString('hex')}1`, generation = 0, patienceMS = 20_000 } = options
  const { perform = async () => {}, polls = true } = options
  const liveness = new MongoLiveness(one.cluster)
  await liveness.publish(heartbeatOf(id, { incarnation }))
  const performed: PeerCommand[] = []
  const senders: (string | null)[] = []
  let received: GivenCommand | null = null
  const current: Member['current'] = {
    session: { commands: new CommandStore(one.cluster), liveness, record: { generation } },
  }
  const logged: Member['logged'] = []
  const context = { ...testContext(), journal: (message: string, fields: unknown) => logged.push({ message, fields }) }
  const commands = new PeerCommands({
    id,
    incarnation,
    current,
    perform: async (given, sender) => {
      const { command } = given
      received = given
      senders.push(sender)
      performed.push(command)
      await perform(command)
    },
    context,
    patienceMS,
  })
  const polling = polls ? setInterval(() => commands.poll(), 20) : undefined
  const made = { performed, received: () => received, senders, logged, commands, current, context, polling }
  members.push(made)
  return made
}

const stored = () => one.client.db(metadataDatabase).collection('commands').countDocuments()

describe('a command given to all', () => {
  it('arrives with the exact JSON text of its filter, because filters are compared as text', async () => {
    const [a, b] = await Promise.all([member('a'), member('b')])
    const includeNamespaces = [
      { database: 'shop', collections: ['$a', 'b.c'] },
      { databaseRegex: { pattern: '^z' }, collectionsRegex: { pattern: '$x', options: 'i' } },
    ]
    const filter = { includeNamespaces, excludeNamespaces: null, dropExcluded: true }
    await a.commands.give({ command: 'filter', filter })
    expect(JSON.stringify(b.received())).toBe(JSON.stringify({ command: 'filter', filter }))
  })

  it.each([3, 0, null])(
    'identifies the commit that an abort is for by the number of aborts before it (%s)',
    async (abortsBefore) => {
      const [a, b] = await Promise.all([member('a'), member('b')])
      await a.commands.give({ command: 'abort', abortsBefore })
      expect(b.received()).toEqual({ command: 'abort', abortsBefore })
    },
  )

  it('identifies no commit when an earlier release has sent the abort', async () => {
    const a = await member('a')
    const to = [{ id: 'a', incarnation: '611' }]
    const rest = { schemaVersion: 1, generation: 0, closed: false, taken: {}, answers: {}, givenAt: new Date() }
    const records = one.client.db(metadataDatabase).collection<Document & { _id: string }>('commands')
    await records.insertOne({ _id: 'earlier', command: 'abort', to, ...rest })
    await vi.waitFor(() => expect(a.received()).toEqual({ command: 'abort' }), patience)
  })

  it('is performed once by each instance, and is answered when all instances have answered', async () => {
    const [a, b, c] = await Promise.all([member('a'), member('b.$x'), member('c')])
    for (const command of ['pause', 'resume', 'commit', 'reverse'] as const) {
      const answers = await b.commands.give({ command })
      expect([...answers]).toEqual([
        ['a', accepted],
        ['b.$x', accepted],
        ['c', accepted],
      ])
    }
    for (const { performed, senders } of [a, b, c]) {
      expect(performed).toEqual(['pause', 'resume', 'commit', 'reverse'])
      expect(senders).toEqual(Array.from({ length: 4 }, () => 'b.$x'))
    }
    expect(await stored()).toBe(0)
  })

  it.each([undefined, 42, 'x'.repeat(257)])(
    'has no sender if its record has none, or has one that is not a valid id (%#)',
    async (sender) => {
      const { performed, senders } = await member('a')
      const to = [{ id: 'a', incarnation: '611' }]
      const rest = { schemaVersion: 1, generation: 0, closed: false, taken: {}, answers: {}, givenAt: new Date() }
      const records = one.client.db(metadataDatabase).collection('commands')
      await records.insertOne({ command: 'pause', to, ...(sender !== undefined && { sender }), ...rest })
      await vi.waitFor(() => expect(performed).toEqual(['pause']), patience)
      expect(senders).toEqual([null])
    },
  )

  it.each(['repair', 'close', 'constructor', 'nothing', 42])(
    'is refused and logged as an error when a record contains %j, which no instance sends',
    async (command) => {
      const unhandled = vi.fn()
      process.on('unhandledRejection', unhandled)
      onTestFinished(() => void process.off('unhandledRejection', unhandled))
      // An instance looks up the command among its own methods. An unknown name throws before a promise is returned.
      const methods = { repair: vi.fn(async () => {}), close: vi.fn(async () => {}) }
      const perform = (name: string): Promise<void> => methods[name as keyof typeof methods]()
      const { context, logged } = await member('a', { perform })
      const records = one.client.db(metadataDatabase).collection<Document & { _id: string }>('commands')
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

  it('returns the refusal of an instance with its text, and an unexpected error without its text', async () => {
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

  it('is not performed by an instance that was started, or restarted, after it was given', async () => {
    const slow = deferred<void>()
    const a = await member('a', { perform: () => slow.promise })
    const b = await member('b', { polls: false })
    const answers = a.commands.give({ command: 'commit' })
    await vi.waitFor(() => expect(a.performed).toEqual(['commit']), patience)
    const again = await member('b', { incarnation: 'b2' })
    const late = await member('late')
    slow.resolve()
    // The first process of b is gone, so the sender does not wait for it.
    expect([...(await answers)]).toMatchObject([
      ['a', accepted],
      ['b', { success: false, error: 'NoAnswer', errorDescription: expect.stringMatching(/^did not pick up/) }],
    ])
    for (const { performed } of [b, again, late]) expect(performed).toEqual([])
  })

  it('is not performed by an instance that polls only after the sender has closed the command', async () => {
    const a = await member('a', { patienceMS: 300 })
    const deaf = await member('deaf', { polls: false })
    expect((await a.commands.give({ command: 'commit' })).get('deaf')).toMatchObject({ error: 'NoAnswer' })
    deaf.commands.poll()
    await a.commands.give({ command: 'pause' }).catch(() => {})
    // On a busy machine, the poll may still find the second command.
    expect(deaf.performed).not.toContain('commit')
  })

  it('reports that an instance has picked up the command when that instance has not finished it', async () => {
    const a = await member('a', { patienceMS: 300 })
    const slow = deferred<void>()
    await member('slow', { perform: () => slow.promise })
    expect((await a.commands.give({ command: 'pause' })).get('slow')).toMatchObject({
      error: 'NoAnswer',
      errorDescription: expect.stringMatching(/^picked up the command and did not finish/),
    })
    slow.resolve()
  })

  it('is refused at once by an instance that begins another session while it takes the command', async () => {
    const a = await member('a')
    const renewed = await member('renewed')
    const commands = new CommandStore(one.cluster)
    const take = commands.take.bind(commands)
    commands.take = async (...args) => {
      const taken = await take(...args)
      renewed.current.session = null
      return taken
    }
    renewed.current.session = { ...(renewed.current.session as CommandedSession), commands }
    expect((await a.commands.give({ command: 'pause' })).get('renewed')).toMatchObject({
      error: 'WrongState',
      errorDescription: expect.stringContaining('did not perform it; send the command again'),
    })
    expect(renewed.performed).toEqual([])
  })

  it('is ignored by an instance of another generation of the sync', async () => {
    const a = await member('a', { patienceMS: 300 })
    const reversed = await member('reversed', { generation: 1 })
    expect((await a.commands.give({ command: 'reverse' })).get('reversed')).toMatchObject({ error: 'NoAnswer' })
    expect(reversed.performed).toEqual([])
  })

  it('is performed although more commands are stored before it than the first batch of a query holds', async () => {
    const commands = one.client.db(metadataDatabase).collection('commands')
    const to = [{ id: 'a', incarnation: '611' }]
    const rest = { schemaVersion: 1, generation: 0, closed: false, taken: {}, answers: {}, to }
    // Commands whose senders have crashed, and which are too old to be taken.
    const givenAt = new Date(Date.now() - 60_000)
    await commands.insertMany(Array.from({ length: 150 }, () => ({ command: 'commit', givenAt, ...rest })))
    const a = await member('a')
    expect((await a.commands.give({ command: 'pause' })).get('a')).toEqual(accepted)
    expect(a.performed).toEqual(['pause'])
  })

  it('cannot be taken when it is too old, and is removed by the next command if its sender has crashed', async () => {
    const commands = new CommandStore(one.cluster)
    await commands.give('orphan', { command: 'commit' }, 0, [{ id: 'a', incarnation: '611' }], 'b')
    const collection = one.client.db(metadataDatabase).collection<{ _id: string; clusterTime: Timestamp }>('commands')
    const secondsAgo = (seconds: number): Timestamp =>
      new Timestamp({ t: Math.floor(Date.now() / 1_000) - seconds, i: 1 })
    await collection.updateOne({ _id: 'orphan' }, { $set: { clusterTime: secondsAgo(22) } })
    expect(await commands.take('orphan', '611', 20_000)).toBe(false)
    // This instance polls. It starts only now, because it would have taken the command while the command was new.
    const a = await member('a')
    await collection.updateOne({ _id: 'orphan' }, { $set: { clusterTime: secondsAgo(700) } })
    expect((await a.commands.give({ command: 'pause' })).get('a')).toEqual(accepted)
    expect(a.performed).toEqual(['pause'])
    expect(await stored()).toBe(0)
  })
})
