import { InvalidArgumentError } from 'commander'
import type { Access } from './access.ts'

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
    | 'mismatches'
    | 'audit'
    | 'instances'
    | 'collections'
    | 'limits'
    | 'limit'
  /** Base addresses without a trailing slash. */
  urls: string[]
  body: { inline: unknown } | { file: string }
  /** Query parameters of a GET, as the API accepts them. */
  query?: Readonly<Record<string, string>> | undefined
  access?: Access | undefined
  /**
   * The requested form of the answers. By default it is a table on a terminal for more than one instance, else JSON.
   */
  form?: 'table' | 'json'
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

/** Builds the body of limit from the given options; `none` removes a limit. */
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

/** Builds the body of commit from the given options. */
export function commitBody({ dryRun, maxSeconds }: { dryRun?: boolean; maxSeconds?: string }): Record<string, unknown> {
  return {
    ...(dryRun === true && { dryRun }),
    // The instance validates the value, because it has the rules.
    ...(maxSeconds !== undefined && { maxSeconds: /^\d+$/.test(maxSeconds) ? Number(maxSeconds) : maxSeconds }),
  }
}

interface StartOptions {
  source?: string
  destination?: string
  buildIndexes?: string
  enableUserWriteBlocking?: string
  reversible?: boolean
  verification: boolean
  existingData?: string
  body?: string
}

/**
 * Builds the body of start from the given options, or returns a sentence that says what is wrong. The instance
 * validates the values, because it has the rules.
 */
export function startBody(options: StartOptions): ClientRequest['body'] | string {
  const { source, destination, buildIndexes, enableUserWriteBlocking, reversible, verification, existingData, body } =
    options
  const fields = {
    ...(source !== undefined && { source }),
    ...(destination !== undefined && { destination }),
    ...(buildIndexes !== undefined && { buildIndexes }),
    ...(enableUserWriteBlocking !== undefined && {
      enableUserWriteBlocking: booleanAlias(enableUserWriteBlocking),
    }),
    ...(reversible === true && { reversible }),
    ...(!verification && { verification: { enabled: false } }),
    ...(existingData !== undefined && { existingData }),
  }
  if (body === undefined) return { inline: fields }
  if (Object.keys(fields).length > 0)
    return '--body is the whole request; give it alone, without other options of start'
  if (body.startsWith('@')) return { file: body.slice(1) }
  try {
    return { inline: JSON.parse(body) as unknown }
  } catch {
    return '--body is not valid JSON; give a JSON object, or @file'
  }
}

/** The API accepts these two values only as JSON booleans. */
function booleanAlias(text: string): string | boolean {
  const lower = text.toLowerCase()
  return lower === 'true' || lower === 'false' ? lower === 'true' : text
}
