import * as v from 'valibot'
import { RefusedError } from '../domain/errors.ts'
import type { CheckOptions } from '../domain/finding.ts'
import { isUserCollection, isUserDatabase } from '../domain/namespace.ts'
import { parseRemap } from '../domain/namespace-remap-rules.ts'
import { everyDatabase } from '../domain/natural-order.ts'
import type { NamespaceFilter, NaturalSelection, StartConfiguration } from '../domain/start-request.ts'
import { refuseContradictions } from '../domain/start-rules.ts'
import { startBodySchema } from './start-schema.ts'
import { describeIssues } from './strict-schema.ts'

/** Converts the body of start: fills in defaults, resolves aliases, and refuses contradictions. */
export function parseStartBody(body: Record<string, unknown>): StartConfiguration {
  const configuration = readStartBody(body)
  refuseContradictions(configuration)
  return configuration
}

export interface CheckRequest extends CheckOptions {
  configuration: StartConfiguration
}

/** Converts the body without refusing contradictions: check reports them together with its other findings. */
export function parseCheckBody(body: Record<string, unknown>): CheckRequest {
  return { configuration: readStartBody(body), skipDiskSpaceCheck: body['skipDiskSpaceCheck'] === true }
}

function readStartBody(body: Record<string, unknown>): StartConfiguration {
  const parsed = v.safeParse(startBodySchema, body)
  if (!parsed.success) throw new RefusedError('InvalidRequest', describeIssues(parsed.issues))
  const { output } = parsed
  if (output.source === output.destination) {
    throw new RefusedError(
      'InvalidRequest',
      "destination: must differ from source; give 'cluster0' for one of them and 'cluster1' for the other",
    )
  }
  return {
    source: output.source,
    destination: output.destination,
    buildIndexes: output.buildIndexes,
    enableUserWriteBlocking: resolveAlias(output.enableUserWriteBlocking),
    writeBlockingGiven: Object.hasOwn(body, 'enableUserWriteBlocking'),
    includeNamespaces: parseFilters('includeNamespaces', output.includeNamespaces),
    excludeNamespaces: parseFilters('excludeNamespaces', output.excludeNamespaces),
    reversible: output.reversible,
    sharding: output.sharding ?? null,
    verification: output.verification,
    existingData: output.existingData,
    timeseries: output.timeseries,
    copyInNaturalOrder: parseNaturalOrder(output.copyInNaturalOrder),
    detectRandomId: output.detectRandomId,
    namespaceRemap: parseRemap(output.namespaceRemap),
  }
}

type WriteBlocking = StartConfiguration['enableUserWriteBlocking']

function resolveAlias(given: WriteBlocking | boolean): WriteBlocking {
  if (given === true) return 'sourceAndDestination'
  if (given === false) return 'none'
  return given
}

/** Resolves the alias `true`. Returns null if no collection is named. */
function parseNaturalOrder(given: NaturalSelection[] | boolean | undefined): NaturalSelection[] | null {
  if (given === true) return [{ database: everyDatabase }]
  if (!given || given.length === 0) return null
  const at = given.findIndex(({ database, collections }) => database === everyDatabase && collections !== undefined)
  if (at !== -1) {
    throw new RefusedError(
      'InvalidRequest',
      `copyInNaturalOrder[${at}].collections: database '${everyDatabase}' stands for all collections of all databases; leave collections out, or name their database`,
    )
  }
  return given
}

/** Checks one field of a filter. Returns null if the field is absent or empty. */
export function parseFilters(field: string, given: NamespaceFilter[] | undefined): NamespaceFilter[] | null {
  // An empty exclude list means the same as no list. The schema refuses an empty include list, because it is ambiguous.
  if (given === undefined || given.length === 0) return null
  for (const [index, filter] of given.entries()) {
    if ((filter.database === undefined) === (filter.databaseRegex === undefined)) {
      throw new RefusedError(
        'InvalidRequest',
        `${field}[${index}].database: is required; give exactly one of database and databaseRegex`,
      )
    }
    if (filter.collections !== undefined && filter.collectionsRegex !== undefined) {
      throw new RefusedError(
        'InvalidRequest',
        `${field}[${index}].collectionsRegex: give at most one of collections and collectionsRegex`,
      )
    }
    refuseSystemNames(`${field}[${index}]`, filter)
  }
  return given
}

/** Refuses a filter with namespaces that are never synced, because such a filter must be a mistake. */
function refuseSystemNames(field: string, { database, collections = [] }: NamespaceFilter): void {
  if (database !== undefined && !isUserDatabase(database)) {
    throw new RefusedError(
      'InvalidRequest',
      `${field}.database: ${database} is never synced, so a filter cannot name it; leave it out`,
    )
  }
  const at = collections.findIndex((collection) => !isUserCollection(collection))
  if (at === -1) return
  throw new RefusedError(
    'InvalidRequest',
    `${field}.collections[${at}]: collections named system.* are never synced, so a filter cannot name one; leave it out`,
  )
}
