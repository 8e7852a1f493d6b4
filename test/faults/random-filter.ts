import type { NamespaceFilter, NamespacePattern } from '../../src/domain/start-request.ts'
import type { Selects } from '../support/compare.ts'
import { Random } from '../support/random.ts'
import {
  archiveDatabase,
  type NamedCollection,
  workloadCollections,
  workloadDatabases,
  workloadViews,
} from '../support/workload-world.ts'

/** Every way to write one element of a filter. */
const forms = [
  'database',
  'database, collections',
  'database, collectionsRegex',
  'databaseRegex',
  'databaseRegex, collections',
  'databaseRegex, collectionsRegex',
] as const
type Form = (typeof forms)[number]

/** An element of a filter, and an independent predicate for the collections that it names. */
interface Element {
  readonly entry: NamespaceFilter
  readonly names: Selects
}

type Pattern = readonly [pattern: NamespacePattern, matches: (name: string) => boolean]

const databasePatterns: readonly Pattern[] = [
  [{ pattern: '^h' }, (name) => name.startsWith('h')],
  [{ pattern: 'ER$', options: 'i' }, (name) => name.endsWith('er')],
  [{ pattern: 'l e', options: 'x' }, (name) => name.includes('le')],
  [{ pattern: '-|^arch' }, (name) => name.includes('-') || name.startsWith('arch')],
  [{ pattern: '^(?!x-)' }, (name) => !name.startsWith('x-')],
  [{ pattern: '' }, () => true],
]

/** Some of these match the temporary names under which the server writes `$out` and renames from other databases. */
const collectionPatterns: readonly Pattern[] = [
  [{ pattern: '^[ab]' }, (name) => name.startsWith('a') || name.startsWith('b')],
  [{ pattern: 'A$', options: 'i' }, (name) => name.toLowerCase().endsWith('a')],
  [{ pattern: '\\.' }, (name) => name.includes('.')],
  [{ pattern: '^(delta|VIEW)', options: 'si' }, (name) => /^(delta|view)/.test(name.toLowerCase())],
  [{ pattern: 'Ü' }, (name) => name.includes('Ü')],
  [{ pattern: '^.{4,5}$' }, (name) => [4, 5].includes([...name].length)],
  [{ pattern: '^(?!view)' }, (name) => !name.startsWith('view')],
  [{ pattern: '[^a-z]' }, (name) => [...name].some((letter) => letter < 'a' || letter > 'z')],
]

const databases = [...workloadDatabases, archiveDatabase]
const names = [...workloadCollections, ...workloadViews, 'small', 'between', 'not there']

function element(random: Random, form: Form): Element {
  const byRegex = form.startsWith('databaseRegex')
  const database = random.pick(databases)
  const [databaseRegex, matchesDatabase] = random.pick(databasePatterns)
  const [collectionsRegex, matchesCollection] = random.pick(collectionPatterns)
  const collections = random.shuffle(names).slice(0, random.int(1, 4))
  const inDatabase = byRegex ? matchesDatabase : (name: string) => name === database
  const entry: NamespaceFilter = byRegex ? { databaseRegex } : { database }
  if (form.endsWith(', collections')) {
    return { entry: { ...entry, collections }, names: (of, name) => inDatabase(of) && collections.includes(name) }
  }
  if (form.endsWith(', collectionsRegex')) {
    return { entry: { ...entry, collectionsRegex }, names: (of, name) => inDatabase(of) && matchesCollection(name) }
  }
  return { entry, names: inDatabase }
}

export interface RandomFilter {
  /** Text that names the forms of the lists' first elements. */
  readonly what: string
  readonly start: { includeNamespaces?: NamespaceFilter[]; excludeNamespaces?: NamespaceFilter[] }
  readonly selects: Selects
}

/**
 * Every form of an include list alone, of an exclude list alone, and of both. `seed % 48` picks one shape, so 48
 * consecutive seeds cover all shapes.
 */
const shapes: readonly (readonly [Form | null, Form | null])[] = [null, ...forms]
  .flatMap((included) => [null, ...forms].map((excluded) => [included, excluded] as const))
  .slice(1)

/** Generates a filter that selects some of the workload's collections and leaves out others. */
export function randomFilter(seed: number): RandomFilter {
  const random = new Random(`filter ${seed}`)
  const [included, excluded] = shapes[seed % shapes.length] ?? [null, null]
  const list = (first: Form | null) =>
    first &&
    [first, ...Array.from({ length: random.int(0, 2) }, () => random.pick(forms))].map((f) => element(random, f))
  for (;;) {
    const [include, exclude] = [list(included), list(excluded)]
    const selects: Selects = (database, name) =>
      (!include || include.some((one) => one.names(database, name))) &&
      !exclude?.some((one) => one.names(database, name) && !(one.entry.collectionsRegex && temporary.test(name)))
    const grid = databases.flatMap((database) => workloadCollections.map((name) => selects(database, name)))
    const taken = grid.filter(Boolean).length
    if (taken < 2 || grid.length - taken < 2) continue
    return {
      what: `${included ? `include ${included}` : ''}${included && excluded ? '; ' : ''}${excluded ? `exclude ${excluded}` : ''}`,
      start: {
        ...(include ? { includeNamespaces: include.map(({ entry }) => entry) } : {}),
        ...(exclude ? { excludeNamespaces: exclude.map(({ entry }) => entry) } : {}),
      },
      selects,
    }
  }
}

/**
 * Temporary names that the server uses for `$out` and for renames from another database. A rename from a selected
 * temporary name does not count.
 */
const temporary = /^tmp\.agg_out\.|^tmp.{5}\.renameCollection$/

/** Returns whether only one of the two names of a rename is selected. */
export function crossesEdge(selects: Selects, from: NamedCollection, to: NamedCollection): boolean {
  const [was, is] = [selects(from.database, from.name), selects(to.database, to.name)]
  return was !== is && !(was && temporary.test(from.name))
}
