import * as v from 'valibot'
import { buildIndexesModes } from '../domain/build-indexes.ts'
import { initialCompareMethods } from '../domain/compare-method.ts'
import { timeSeriesModes } from '../domain/start-request.ts'
import { objectOf, singleFieldOf } from './strict-schema.ts'

/** The body of `POST /api/v1/start`, for validation and for OpenAPI. */

const clusterName = (meaning: string) => v.pipe(v.picklist(['cluster0', 'cluster1']), v.description(meaning))
const name = (meaning: string) => v.pipe(v.string(), v.minLength(1, 'must not be empty'), v.description(meaning))

const patternSchema = v.pipe(
  objectOf({
    pattern: v.pipe(v.string(), v.description('Regular expression.')),
    options: v.exactOptional(v.pipe(v.string(), v.description('Regular expression options, for instance i.'))),
  }),
  v.description('Selects names by pattern.'),
)

const namespaceFilterSchema = v.pipe(
  objectOf({
    database: v.exactOptional(name('Name of a database. Give exactly one of database and databaseRegex.')),
    databaseRegex: v.exactOptional(patternSchema),
    collections: v.exactOptional(
      v.pipe(
        v.array(name('Name of a collection.')),
        v.minLength(1, 'must not be empty; leave it out to mean all collections of the database'),
        v.description('Collections of that database; all when neither this nor collectionsRegex is given.'),
      ),
    ),
    collectionsRegex: v.exactOptional(patternSchema),
  }),
  v.description(
    'Selects collections: exactly one of database and databaseRegex, at most one of collections and collectionsRegex.',
  ),
)

/** The server's own limit for any number of shards (`CreateCollectionCoordinator` in its source). */
const initialChunksMax = 1_000_000

const shardingSchema = v.pipe(
  objectOf({
    createSupportingIndexes: v.optional(
      v.pipe(v.boolean(), v.description('Create an index that supports the shard key where none exists.')),
      false,
    ),
    shardingEntries: v.pipe(
      v.array(
        objectOf({
          database: name('Database of the collection to shard.'),
          collection: name('Collection to shard.'),
          shardCollection: v.pipe(
            objectOf({
              key: v.pipe(
                v.array(
                  singleFieldOf(
                    v.union([
                      v.pipe(v.number(), v.integer('must be an integer or the string hashed')),
                      v.literal('hashed'),
                    ]),
                  ),
                ),
                v.minLength(1, 'must have at least one field'),
                v.description('Fields of the shard key in order; each element maps one field name to its direction.'),
              ),
              unique: v.exactOptional(
                v.pipe(
                  v.boolean(),
                  v.description(
                    'The values of the key are unique. The source needs a unique index on exactly the key.',
                  ),
                ),
              ),
              numInitialChunks: v.exactOptional(
                v.pipe(
                  v.number(),
                  v.integer('must be an integer'),
                  v.minValue(1, 'must be at least 1'),
                  v.maxValue(initialChunksMax, `must be at most ${initialChunksMax}`),
                  v.description('Number of chunks to create before the copy, for a key with a hashed field.'),
                ),
              ),
              presplitHashedZones: v.exactOptional(
                v.pipe(
                  v.boolean(),
                  v.description(
                    'The server creates the chunks by the zones of the collection on the destination, for a key with a hashed field.',
                  ),
                ),
              ),
            }),
            v.description('Shard key specification to create on the destination.'),
          ),
        }),
      ),
      v.description('Collections to shard. An empty array shards nothing; collections not listed stay unsharded.'),
    ),
  }),
  v.description('Required for, and only allowed with, a replica set source and a sharded destination.'),
)

/** The fields of a filter, which `POST /api/v1/filter` has too. */
export const filterFields = {
  includeNamespaces: v.exactOptional(
    v.pipe(
      v.array(namespaceFilterSchema),
      v.minLength(1, 'must not be empty; leave it out to sync everything'),
      v.description('Only these databases and collections are synced.'),
    ),
  ),
  excludeNamespaces: v.exactOptional(
    v.pipe(v.array(namespaceFilterSchema), v.description('These databases and collections are left out.')),
  ),
}

export const startBodySchema = objectOf({
  source: clusterName('Name of the source cluster.'),
  destination: clusterName('Name of the destination cluster; differs from source.'),
  buildIndexes: v.optional(
    v.pipe(
      v.picklist(buildIndexesModes),
      v.description(
        "When the source's indexes are built. beforeDataCopy: when a collection is created, while it is empty. " +
          'afterDataCopy: when the copy of a collection has ended; a commit waits for these builds. excludeHashed ' +
          'and excludeHashedAfterCopy: the same, without hashed indexes that no shard key needs. never: only indexes ' +
          'that a shard key needs.',
      ),
    ),
    'beforeDataCopy',
  ),
  enableUserWriteBlocking: v.optional(
    v.pipe(
      v.union([v.picklist(['sourceAndDestination', 'destinationOnly', 'none']), v.boolean()]),
      v.description('Where user writes are blocked. true means sourceAndDestination, false means none.'),
    ),
    'destinationOnly',
  ),
  ...filterFields,
  reversible: v.optional(v.pipe(v.boolean(), v.description('The sync may be reversed after commit.')), false),
  sharding: v.exactOptional(shardingSchema),
  verification: v.optional(
    v.pipe(
      objectOf({
        enabled: v.optional(v.pipe(v.boolean(), v.description('Turns the embedded verifier on or off.')), true),
        initialCompareMethod: v.optional(
          v.pipe(
            v.picklist(initialCompareMethods),
            v.description(
              'How the first verification compares documents. binary: as bytes. toHashedIndexKey: by hashes and sizes ' +
                'that both clusters compute, which needs much less bandwidth and proves less: not the types of numbers. ' +
                'Documents whose hashes differ, and those that change later, are compared as bytes.',
            ),
          ),
          'binary',
        ),
      }),
      v.description('Embedded verifier.'),
    ),
    { enabled: true, initialCompareMethod: 'binary' },
  ),
  existingData: v.optional(
    v.pipe(
      v.picklist(['refuse', 'converge']),
      v.description(
        'What start does with namespaces to sync that already exist on the destination. refuse: it fails with ' +
          'DestinationNotEmpty. converge: it makes them equal to the source and writes only what differs; documents ' +
          'that the source does not have are deleted.',
      ),
    ),
    'refuse',
  ),
  timeseries: v.optional(
    v.pipe(
      v.picklist(timeSeriesModes),
      v.description(
        'What start does with time-series collections, which tandem cannot sync. refuse: it fails with ' +
          'UnsupportedCollection. skip: they are left out on both clusters, including those that appear later; check ' +
          'and progress.warnings name them.',
      ),
    ),
    'refuse',
  ),
  copyInNaturalOrder: v.exactOptional(
    v.pipe(
      v.union([
        v.boolean(),
        v.array(
          objectOf({
            database: name('Name of a database; "." for all databases.'),
            collections: v.exactOptional(
              v.pipe(
                v.array(name('Name of a collection.')),
                v.minLength(1, 'must not be empty; leave it out to mean all collections of the database'),
                v.description('Collections of that database; all when absent.'),
              ),
            ),
          }),
        ),
      ]),
      v.description(
        'Collections whose documents are copied in natural order instead of _id order. Use it for collections with ' +
          'random _ids that are larger than memory. true means all collections.',
      ),
    ),
  ),
  detectRandomId: v.optional(
    v.pipe(
      v.boolean(),
      v.description(
        'On a source replica set, also copies in natural order every collection of 20 GiB or more whose sampled ' +
          '_ids are random.',
      ),
    ),
    true,
  ),
  namespaceRemap: v.exactOptional(
    v.pipe(
      v.array(
        objectOf({
          from: v.pipe(
            objectOf({
              database: name('Name on the source.'),
              collection: v.exactOptional(name('Name of one collection; all collections of the database when absent.')),
            }),
            v.description('A database or a collection of the source.'),
          ),
          to: v.pipe(
            objectOf({
              database: name('Name on the destination.'),
              collection: v.exactOptional(name('Name of the collection; required if from has one.')),
            }),
            v.description('Where it is synced to.'),
          ),
        }),
      ),
      v.description(
        'Databases and collections that get other names on the destination. All other fields have the names of the ' +
          'source. The filters must not select a database or collection of the source whose name is a target, unless ' +
          'it is renamed too. An element for a collection takes precedence over one for its database.',
      ),
    ),
  ),
  skipDiskSpaceCheck: v.optional(
    v.pipe(
      v.boolean(),
      v.description(
        "Makes check skip the comparison of the destination's free disk space with the size of the source. start " +
          'never compares them, because both are estimates.',
      ),
    ),
    false,
  ),
})
