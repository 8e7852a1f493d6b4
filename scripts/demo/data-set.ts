import { type Db, type Document, type IndexDescription, MongoClient } from 'mongodb'
import { readCsv, readJson } from './vega-files.ts'

/**
 * Public data from the npm package vega-datasets, stored in MongoDB as an application stores it: several databases with every
 * kind of index and collection that tandem must migrate. Only the flights are enlarged: the 20,000 flights of the first
 * quarter of 2001 are repeated for earlier quarters and joined with their airports.
 */
export interface DataSet {
  readonly flights: readonly Document[]
  readonly airports: readonly Document[]
  readonly movies: readonly Document[]
}

export const databases = ['cinema', 'nature', 'travel']

const flightQuarters = 12
const quarterMS = 90 * 24 * 3600_000
const insertBatchDocuments = 5_000
const insertsInParallel = 2
const bookingLifeSeconds = 30 * 24 * 3600
const boardBytes = 4 * 1024 * 1024
const boardDocuments = 2_000

export const flightNumber = (at: number): string => `TD${String(at).padStart(7, '0')}`

interface Definition {
  readonly database: string
  readonly name: string
  readonly options?: Document
  readonly indexes?: IndexDescription[]
  readonly documents?: readonly Document[]
}

export function readDataSet(): DataSet {
  const airports = readCsv('airports.csv').map(({ latitude, longitude, ...rest }) => ({
    ...rest,
    location: point(longitude, latitude),
    movements: 0,
  }))
  const airportOf = new Map(airports.map((airport) => [(airport as Document)['iata'] as string, airport as Document]))
  const endpointOf = (iata: string) => {
    const { city, state, location } = airportOf.get(iata) ?? {}
    return { iata, ...(city ? { city, state, location } : {}) }
  }
  const quarter = readJson('flights-20k.json') as { date: string; origin: string; destination: string }[]
  const flights: Document[] = []
  for (let back = 0; back < flightQuarters; back++) {
    for (const { date, origin, destination, ...rest } of quarter) {
      flights.push({
        number: flightNumber(flights.length),
        departure: new Date(Date.parse(`${date.replaceAll('/', '-').replace(' ', 'T')}:00Z`) - back * quarterMS),
        ...rest,
        from: endpointOf(origin),
        to: endpointOf(destination),
      })
    }
  }
  return { flights, airports, movies: readJson('movies.json') as Document[] }
}

function definitions({ flights, airports, movies }: DataSet): Definition[] {
  const earthquakes = (readJson('earthquakes.json') as { features: Document[] }).features
  return [
    {
      database: 'travel',
      name: 'flights',
      indexes: [
        { key: { number: 1 }, unique: true },
        { key: { 'from.iata': 1, departure: -1 } },
        { key: { delay: 1 }, partialFilterExpression: { delay: { $gt: 60 } } },
      ],
      documents: flights,
    },
    {
      database: 'travel',
      name: 'airports',
      indexes: [{ key: { iata: 1 }, unique: true }, { key: { location: '2dsphere' } }],
      documents: airports,
    },
    {
      database: 'travel',
      name: 'zipcodes',
      options: { collation: { locale: 'en', strength: 2 } },
      indexes: [{ key: { state: 1, city: 1 } }, { key: { location: '2dsphere' } }],
      documents: readCsv('zipcodes.csv').map(({ latitude, longitude, zip_code, ...rest }) => ({
        _id: String(zip_code).padStart(5, '0'),
        ...rest,
        location: point(longitude, latitude),
      })),
    },
    {
      database: 'travel',
      name: 'bookings',
      options: { changeStreamPreAndPostImages: { enabled: true } },
      indexes: [{ key: { madeAt: 1 }, expireAfterSeconds: bookingLifeSeconds }],
    },
    { database: 'travel', name: 'board', options: { capped: true, size: boardBytes, max: boardDocuments } },
    {
      database: 'travel',
      name: 'delays',
      options: {
        viewOn: 'flights',
        pipeline: [{ $group: { _id: '$from.iata', mean: { $avg: '$delay' }, flights: { $sum: 1 } } }],
      },
    },
    {
      database: 'cinema',
      name: 'movies',
      options: { validator: { Title: { $exists: true } }, validationAction: 'warn' },
      indexes: [
        { key: { Title: 'text', Director: 'text' } },
        { key: { Distributor: 1 }, hidden: true },
        { key: { 'IMDB Rating': -1 }, sparse: true },
      ],
      documents: movies,
    },
    {
      database: 'cinema',
      name: 'favourites',
      options: { viewOn: 'movies', pipeline: [{ $match: { 'IMDB Rating': { $gte: 8 } } }] },
    },
    {
      database: 'nature',
      name: 'earthquakes',
      indexes: [{ key: { geometry: '2dsphere' } }, { key: { 'properties.mag': -1 } }],
      documents: earthquakes.map(({ id, ...rest }) => ({ _id: id, ...rest })),
    },
    {
      database: 'nature',
      name: 'weather',
      options: { clusteredIndex: { key: { _id: 1 }, unique: true } },
      documents: readCsv('seattle-weather.csv').map(({ date, ...rest }) => ({ _id: new Date(String(date)), ...rest })),
    },
    { database: 'nature', name: 'birdstrikes', documents: readCsv('birdstrikes.csv') },
  ]
}

/**
 * Creates and fills all collections on the cluster. `loaded` receives the number of documents loaded so far and the total.
 *
 * @param before6 true if the cluster is older than 6.0 and does not support all options
 */
export async function loadDataSet(
  uri: string,
  data: DataSet,
  loaded: (done: number, total: number) => void,
  { before6 = false } = {},
) {
  // The demo's data is disposable, so the load does not wait for the servers' journals.
  await using client = new MongoClient(uri, { writeConcern: { w: 1, journal: false } })
  const all = definitions(data)
  const total = all.reduce((sum, { documents }) => sum + (documents?.length ?? 0), 0)
  let done = 0
  for (const { database, name, options, indexes, documents } of all) {
    const db = client.db(database)
    await db.createCollection(name, before6 ? supportedBefore6(options) : options)
    await insertAll(db, name, documents ?? [], (count) => {
      done += count
      loaded(done, total)
    })
    if (indexes) await db.collection(name).createIndexes(indexes)
  }
}

function supportedBefore6({ clusteredIndex, changeStreamPreAndPostImages, ...options }: Document = {}): Document {
  return options
}

async function insertAll(db: Db, name: string, documents: readonly Document[], inserted: (count: number) => void) {
  const batches: Document[][] = []
  // Insert copies, because the driver adds `_id` to the documents it receives and the caller reuses the originals.
  for (let at = 0; at < documents.length; at += insertBatchDocuments) {
    batches.push(documents.slice(at, at + insertBatchDocuments).map((document) => ({ ...document })))
  }
  const worker = async () => {
    for (let batch = batches.shift(); batch; batch = batches.shift()) {
      await db.collection(name).insertMany(batch, { ordered: false })
      inserted(batch.length)
    }
  }
  await Promise.all(Array.from({ length: insertsInParallel }, worker))
}

function point(longitude: unknown, latitude: unknown): Document {
  return { type: 'Point', coordinates: [Number(longitude), Number(latitude)] }
}
