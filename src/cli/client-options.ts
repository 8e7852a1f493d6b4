import { type Command, InvalidArgumentError, Option } from 'commander'
import type { Access } from './access.ts'
import type { FailOn } from './findings.ts'

/** A command for the HTTP API of one or several instances. */
export interface ClientRequest {
  command:
    | 'start'
    | 'check'
    | 'progress'
    | 'pause'
    | 'resume'
    | 'commit'
    | 'abort'
    | 'reverse'
    | 'repair'
    | 'resync'
    | 'filter'
    | 'mismatches'
    | 'audit'
    | 'instances'
    | 'collections'
    | 'limits'
    | 'limit'
  /** Base addresses without a trailing slash. */
  urls: string[]
  /** If true, there is one address, and the instance there passes the command on to all instances. */
  all?: boolean
  body: { inline: unknown } | { file: string }
  /** Query parameters of a GET, as the API accepts them. */
  query?: Readonly<Record<string, string>> | undefined
  access?: Access | undefined
  /** The requested form of the answers. If it is absent, `asTable` of client.ts decides. */
  form?: 'table' | 'json'
  /** For check: the lowest severity of a finding that makes the exit code 1. The default is an error. */
  failOn?: FailOn
  /** If true, the operator must confirm the command on a terminal before it is sent. */
  confirms?: boolean
}

export const defaultUrls = ['http://localhost:27182']

/** Collects the values of `--url`, which may be repeated. */
export function collectUrl(text: string, before: string[] | undefined): string[] {
  let url: URL
  try {
    url = new URL(text)
  } catch {
    throw new InvalidArgumentError('It must be an address like http://localhost:27182.')
  }
  if (url.protocol !== 'http:' && url.protocol !== 'https:') {
    throw new InvalidArgumentError('It must begin with http:// or https://.')
  }
  if (url.username !== '' || url.password !== '' || url.search !== '' || url.hash !== '') {
    throw new InvalidArgumentError('It must be a base address, without credentials, query or fragment.')
  }
  return [...(before ?? []), url.href.replace(/\/+$/, '')]
}

/** Builds the body of limit from the options; the value `none` removes a limit. */
export function limitsBody(options: Record<string, string | undefined>): Record<string, unknown> {
  const fields = ['bytesPerSecond', 'readConcurrency', 'writeConcurrency']
  return Object.fromEntries(
    fields.flatMap((field) => {
      const given = options[field]
      // The instance validates the values, because it has the rules.
      return given === undefined ? [] : [[field, given === 'none' ? null : /^\d+$/.test(given) ? Number(given) : given]]
    }),
  )
}

/**
 * Builds the body of resync. A namespace is split at its first dot, because the name of a database contains none. The
 * instance validates the names.
 */
export function resyncBody({ namespace = [] }: { namespace?: string[] }): Record<string, unknown> {
  const namespaces = namespace.map((text) => {
    const dot = text.indexOf('.')
    return dot < 0 ? { database: text } : { database: text.slice(0, dot), collection: text.slice(dot + 1) }
  })
  return { namespaces }
}

/**
 * Builds the body of filter from the given options, or returns a sentence that says what is wrong. The instance
 * validates the values, because it has the rules.
 */
export function filterBody(options: {
  includeNamespaces?: string
  excludeNamespaces?: string
  dropExcluded?: boolean
  body?: string
}): ClientRequest['body'] | string {
  const { includeNamespaces, excludeNamespaces, dropExcluded, body } = options
  const lists = { includeNamespaces, excludeNamespaces }
  const given = Object.entries(lists).filter(([, text]) => text !== undefined) as [string, string][]
  if (body !== undefined) return wholeBody(body)
  // Without a filter everything is synced, which must not happen by mistake.
  if (given.length === 0)
    return "give --includeNamespaces, --excludeNamespaces or --body; --body '{}' removes the filter and syncs everything"
  const fields: Record<string, unknown> = dropExcluded ? { dropExcluded } : {}
  for (const [name, text] of given) {
    try {
      fields[name] = JSON.parse(text) as unknown
    } catch {
      return `--${name} is not valid JSON; give an array as in the body of start`
    }
  }
  return { inline: fields }
}

/** Builds the body of commit from the options. */
export function commitBody({ dryRun, maxSeconds }: { dryRun?: boolean; maxSeconds?: string }): Record<string, unknown> {
  return {
    ...(dryRun === true && { dryRun }),
    // The instance validates the value, because it has the rules.
    ...(maxSeconds !== undefined && { maxSeconds: /^\d+$/.test(maxSeconds) ? Number(maxSeconds) : maxSeconds }),
  }
}

/**
 * Adds the options of `addFields`, each of which is a field of the body, and `--body`, which cannot be combined with them.
 */
export function withBody(command: Command, addFields: (command: Command) => void): Command {
  const before = command.options.length
  addFields(command)
  const fields = command.options.slice(before).map((option) => option.attributeName())
  return command.addOption(
    new Option('--body <json>', 'the whole request body as JSON, or @file to read it from a file').conflicts(fields),
  )
}

/** Returns the body that `--body` gives, or a sentence that says what is wrong with it. */
export function wholeBody(body: string): ClientRequest['body'] | string {
  if (body.startsWith('@')) return { file: body.slice(1) }
  try {
    return { inline: JSON.parse(body) as unknown }
  } catch {
    return '--body is not valid JSON; give a JSON object, or @file'
  }
}
