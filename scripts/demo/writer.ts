import { setTimeout as sleep } from 'node:timers/promises'
import { type AnyBulkWriteOperation, type Document, MongoClient, ObjectId } from 'mongodb'
import { type DataSet, flightNumber } from './data-set.ts'

/**
 * Milliseconds between rounds. Rounds of 40 operations are about 1,000 operations per second, which leaves capacity on
 * two cores for tandem and the servers.
 */
const roundMS = 40
const hotAirports = 8
const rateWindowMS = 1_000

export interface WriterCounts {
  inserts: number
  updates: number
  deletes: number
  transactions: number
  /** DDL operations, and the inserts between them (see `changeDefinitions`). */
  definitions: number
}

/**
 * The application that continues to write while its data is migrated. It writes new flights, delays, cancellations, frequent
 * changes of a few airports, bookings with a TTL, a capped departure board, and transactions over two collections.
 */
export class Writer {
  readonly counts: WriterCounts = { inserts: 0, updates: 0, deletes: 0, transactions: 0, definitions: 0 }
  readonly #client: MongoClient
  readonly #data: DataSet
  readonly #recent: { at: number; operations: number }[] = []
  #stopping = false
  #running: Promise<void> = Promise.resolve()
  #next: number

  constructor(uri: string, data: DataSet) {
    // With majority write concern, no failover can lose a counted write.
    this.#client = new MongoClient(uri, { writeConcern: { w: 'majority' } })
    this.#data = data
    this.#next = data.flights.length
  }

  start(onFailure: (error: unknown) => void): void {
    this.#running = this.#run()
    this.#running.catch(onFailure)
  }

  /** Resolves when the last write is acknowledged. */
  async stop(): Promise<void> {
    this.#stopping = true
    await this.#running.catch(() => {})
  }

  async close(): Promise<void> {
    await this.stop()
    await this.#client.close()
  }

  get operations(): number {
    return this.counts.inserts + this.counts.updates + this.counts.deletes
  }

  /** Operations during the last second. */
  get rate(): number {
    if (this.#stopping) return 0
    const now = performance.now()
    const recent = this.#recent.filter(({ at }) => now - at < rateWindowMS)
    return Math.round((recent.reduce((sum, { operations }) => sum + operations, 0) * 1000) / rateWindowMS)
  }

  async #run(): Promise<void> {
    for (let round = 0; !this.#stopping; round++) {
      const startedAt = performance.now()
      const before = this.operations
      await Promise.all([this.#flights(), this.#others(round)])
      if (round % 25 === 0) await this.#transaction()
      const now = performance.now()
      this.#recent.push({ at: now, operations: this.operations - before })
      if (this.#recent.length > 200) this.#recent.splice(0, 100)
      const remainingMS = roundMS - (now - startedAt)
      if (remainingMS > 0) await sleep(remainingMS)
    }
  }

  async #flights(): Promise<void> {
    const operations: AnyBulkWriteOperation<Document>[] = []
    for (let i = 0; i < 10; i++) operations.push({ insertOne: { document: this.#newFlight() } })
    for (let i = 0; i < 16; i++) {
      const delay = Math.round(Math.random() * 90)
      operations.push({ updateOne: { filter: this.#anyFlight(), update: { $set: { delay }, $inc: { revision: 1 } } } })
    }
    for (let i = 0; i < 6; i++) operations.push({ deleteOne: { filter: this.#anyFlight() } })
    const flights = this.#client.db('travel').collection('flights')
    this.#count(await flights.bulkWrite(operations, { ordered: false }))
  }

  async #others(round: number): Promise<void> {
    const travel = this.#client.db('travel')
    const airport = this.#data.airports[round % hotAirports] as Document
    const movements: AnyBulkWriteOperation<Document>[] = Array.from({ length: 5 }, () => ({
      updateOne: { filter: { iata: airport['iata'] }, update: { $inc: { movements: 1 } } },
    }))
    this.#count(await travel.collection('airports').bulkWrite(movements))
    const flight = this.#someFlight()
    const departure = { number: flight['number'], to: flight['to']?.iata, calledAt: new Date() }
    this.#count(await travel.collection('board').bulkWrite([{ insertOne: { document: departure } }]))
    const movie = this.#data.movies[round % this.#data.movies.length] as Document
    const seen = { updateMany: { filter: { Title: movie['Title'] }, update: { $inc: { seen: 1 } } } }
    if (round % 5 === 0) this.#count(await this.#client.db('cinema').collection('movies').bulkWrite([seen]))
  }

  /** Inserts a booking and updates its flight atomically. */
  async #transaction(): Promise<void> {
    const travel = this.#client.db('travel')
    const number = this.#someFlight()['number'] as string
    await this.#client.withSession((session) =>
      session.withTransaction(async () => {
        const booking = { number, madeAt: new Date(), by: new ObjectId() }
        await travel.collection('bookings').insertOne(booking, { session })
        await travel.collection('flights').updateOne({ number }, { $inc: { booked: 1 } }, { session })
      }),
    )
    this.counts.inserts += 1
    this.counts.updates += 1
    this.counts.transactions += 1
  }

  /** Changes indexes, collections and views while the sync runs, as a deployment of the application does. */
  async changeDefinitions(): Promise<void> {
    const travel = this.#client.db('travel')
    const steps: (() => Promise<unknown>)[] = [
      () => travel.collection('flights').createIndex({ 'to.iata': 1, departure: -1 }),
      () => travel.createCollection('crew_new', { validator: { name: { $type: 'string' } } }),
      () => travel.collection('crew_new').insertMany([{ name: 'Amelia' }, { name: 'Antoine' }]),
      () => travel.renameCollection('crew_new', 'crew'),
      () => travel.collection('zipcodes').dropIndex('state_1_city_1'),
      () => travel.createCollection('scratch'),
      () => travel.dropCollection('scratch'),
      () => travel.command({ collMod: 'delays', viewOn: 'flights', pipeline: [{ $match: { delay: { $gt: 30 } } }] }),
    ]
    for (const step of steps) {
      await step()
      this.counts.definitions += 1
    }
  }

  #count(result: { insertedCount: number; modifiedCount: number; deletedCount: number }): void {
    this.counts.inserts += result.insertedCount
    this.counts.updates += result.modifiedCount
    this.counts.deletes += result.deletedCount
  }

  #newFlight(): Document {
    return { ...this.#someFlight(), number: flightNumber(this.#next++), departure: new Date() }
  }

  #someFlight(): Document {
    return this.#data.flights[Math.floor(Math.random() * this.#data.flights.length)] as Document
  }

  #anyFlight(): Document {
    return { number: flightNumber(Math.floor(Math.random() * this.#next)) }
  }
}
