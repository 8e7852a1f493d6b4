import { InvalidArgumentError } from 'commander'
import type { Access } from './access.ts'

/** One command for the HTTP API of one or several instances. */
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
  /** Of a question, as the API takes it. */
  query?: Readonly<Record<string, string>> | undefined
  access?: Access | undefined
  /** As the operator wants the answers; else a table where a person looks and there is more than one instance. */
  form?: 'table' | 'json'
}

export const defaultUrls = ['http://localhost:27182']

/** Collects `--url`, which may be repeated. */
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

/** The body of limit from its options: only what was given; `none` takes a limit away. */
export function limitsBody(options: Record<string, string | undefined>): Record<string, unknown> {
  const fields = ['bytesPerSecond', 'readConcurrency', 'writeConcurrency']
  return Object.fromEntries(
    fields.flatMap((field) => {
      const given = options[field]
      // The instance judges the values: it knows the rules.
      return given === undefined ? [] : [[field, given === 'none' ? null : /^\d+$/.test(given) ? Number(given) : given]]
    }),
  )
}

/** The body of commit from its options: only what was given. */
export function commitBody({ dryRun, maxSeconds }: { dryRun?: boolean; maxSeconds?: string }): Record<string, unknown> {
  return {
    ...(dryRun === true && { dryRun }),
    // The instance judges the value: it knows the rules.
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
  body?: string
}

/** The body of start from its options, or a sentence that says what is wrong. Values are left for the instance to judge: it knows the rules. */
export function startBody(options: StartOptions): ClientRequest['body'] | string {
  const { source, destination, buildIndexes, enableUserWriteBlocking, reversible, verification, body } = options
  const fields = {
    ...(source !== undefined && { source }),
    ...(destination !== undefined && { destination }),
    ...(buildIndexes !== undefined && { buildIndexes }),
    ...(enableUserWriteBlocking !== undefined && {
      enableUserWriteBlocking: booleanAlias(enableUserWriteBlocking),
    }),
    ...(reversible === true && { reversible }),
    ...(!verification && { verification: { enabled: false } }),
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

/** The API takes these two as JSON booleans only. */
function booleanAlias(text: string): string | boolean {
  const lower = text.toLowerCase()
  return lower === 'true' || lower === 'false' ? lower === 'true' : text
}
