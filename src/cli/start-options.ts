import type { Command } from 'commander'
import { buildIndexesModes } from '../domain/build-indexes.ts'
import type { NamespaceRename, ShardingEntry } from '../domain/start-request.ts'
import { type ClientRequest, wholeBody, withBody } from './client-options.ts'
import { collectFilter, collectNatural, filtersOf, type Selected } from './namespace-options.ts'
import { collectRemap } from './remap-option.ts'
import { collectShardKey, noShardKeys } from './shard-key-option.ts'

/** The options of start and check, and the conversion of these options to a request body. */

interface StartOptions {
  source?: string
  destination?: string
  buildIndexes?: string
  enableUserWriteBlocking?: string
  reversible?: boolean
  verification: boolean
  verificationMethod?: string
  existingData?: string
  timeseries?: string
  skipDiskSpaceCheck?: boolean
  copyInNaturalOrder?: Selected[]
  detectRandomId: boolean
  include?: Selected[]
  exclude?: Selected[]
  remap?: NamespaceRename[]
  shardKey?: ShardingEntry[]
  createSupportingIndexes?: boolean
  body?: string
}

export function addStartOptions(command: Command): Command {
  return withBody(command, addFields)
}

function addFields(command: Command): void {
  command
    .option('--source <cluster>', 'cluster0 or cluster1')
    .option('--destination <cluster>', 'the other cluster')
    .option('--buildIndexes <mode>', `beforeDataCopy (default), ${buildIndexesModes.slice(1, -1).join(', ')} or never`)
    .option(
      '--enableUserWriteBlocking <mode>',
      'sourceAndDestination (or true), destinationOnly (default), none (or false)',
    )
    .option('--reversible', 'allow reversing after commit')
    .option('--no-verification', 'run without the embedded verifier')
    .option(
      '--verificationMethod <method>',
      'how the first verification compares documents: binary (default: their bytes) or toHashedIndexKey (hashes, which need less bandwidth and prove less)',
    )
    .option(
      '--existingData <what>',
      'refuse (default) or converge: make existing collections equal to the source, drop those that the source does not have',
    )
    .option('--timeseries <what>', 'refuse (default) or skip: leave time-series collections out of the sync')
    .option(
      '--copyInNaturalOrder <db[.collection]>',
      'copy this database or collection in natural order instead of _id order; repeat the option for several; . for all',
      collectNatural,
    )
    .option(
      '--no-detectRandomId',
      'do not look for large collections with random _ids, which are otherwise copied in natural order',
    )
    .option('--skipDiskSpaceCheck', 'check does not compare free space on the destination with the size of the source')
    .option(
      '--include <db[.collection]>',
      'sync only this database or collection; repeat the option for several',
      collectFilter,
    )
    .option(
      '--exclude <db[.collection]>',
      'leave this database or collection out; repeat the option for several',
      collectFilter,
    )
    .option(
      '--remap <name=name>',
      'give this database or db.collection of the source another name on the destination; repeat the option for several',
      collectRemap,
    )
    .option(
      '--shardKey <db.collection=key>',
      `shard this collection of a replica set by the key field:1[,field:hashed…]; repeat the option for several; ${noShardKeys}: shard nothing`,
      collectShardKey,
    )
    .option('--createSupportingIndexes', 'with --shardKey: create the index of a shard key where none exists')
}

/**
 * Builds the body of start from the given options, or returns a sentence that says what is wrong. The instance
 * validates the values, because it has the rules.
 */
export function startBody(options: StartOptions): ClientRequest['body'] | string {
  const { source, destination, buildIndexes, enableUserWriteBlocking, reversible, body } = options
  const { verification, verificationMethod } = options
  const { existingData, timeseries, skipDiskSpaceCheck, include, exclude, shardKey, createSupportingIndexes } = options
  const { copyInNaturalOrder, detectRandomId, remap } = options
  const fields = {
    ...(source !== undefined && { source }),
    ...(destination !== undefined && { destination }),
    ...(buildIndexes !== undefined && { buildIndexes }),
    ...(enableUserWriteBlocking !== undefined && {
      enableUserWriteBlocking: booleanAlias(enableUserWriteBlocking),
    }),
    ...(reversible === true && { reversible }),
    ...((!verification || verificationMethod !== undefined) && {
      verification: {
        ...(!verification && { enabled: false }),
        ...(verificationMethod !== undefined && { initialCompareMethod: verificationMethod }),
      },
    }),
    ...(existingData !== undefined && { existingData }),
    ...(timeseries !== undefined && { timeseries }),
    ...(copyInNaturalOrder && { copyInNaturalOrder: filtersOf(copyInNaturalOrder) }),
    ...(!detectRandomId && { detectRandomId }),
    ...(skipDiskSpaceCheck === true && { skipDiskSpaceCheck }),
    ...(include && { includeNamespaces: filtersOf(include) }),
    ...(exclude && { excludeNamespaces: filtersOf(exclude) }),
    ...(remap && { namespaceRemap: remap }),
    ...(shardKey && {
      sharding: {
        ...(createSupportingIndexes === true && { createSupportingIndexes }),
        shardingEntries: shardKey,
      },
    }),
  }
  if (body !== undefined) return wholeBody(body)
  if (createSupportingIndexes && !shardKey) return '--createSupportingIndexes applies to --shardKey; give both'
  return { inline: fields }
}

/** The API accepts these two values only as JSON booleans. */
function booleanAlias(text: string): string | boolean {
  const lower = text.toLowerCase()
  return lower === 'true' || lower === 'false' ? lower === 'true' : text
}
