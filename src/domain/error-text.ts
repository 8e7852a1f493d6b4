import { circumstancesOf } from './circumstances.ts'
import { serverCode } from './server-code.ts'

/**
 * The text of an error that is not tandem's own: the command, the cluster and namespace, the server's code, and the
 * server's text without the document values that it quotes.
 */

/**
 * Commands whose errors may quote a document value without delimiters. `errorText` shows only the general description of
 * such an error, which is the text before the first colon.
 */
const commandsWithDocuments = new Set(['insert', 'update', 'findAndModify', 'createIndexes'])

/**
 * Returns, for example, `collMod on cluster1, app.things: FailedToParse (9): <text>`. If the error does not come from a
 * server, its name takes the place of the server's code. Generic names, such as `Error`, are omitted.
 */
export function errorText(error: unknown): string {
  const { cluster, command, namespace } = circumstancesOf(error)
  const place = [cluster, namespace].filter((part) => part !== undefined).join(', ')
  const where = command === undefined ? '' : `${command} on ${place}: `
  return `${where}${reasonOf(error)}`
}

/** Says which cluster does not answer, with the driver's last error. */
export function unreachableText(error: unknown): string {
  const { cluster } = circumstancesOf(error)
  return `${cluster ?? 'a cluster'} does not answer (${reasonOf(error)})`
}

/** The stacks of the error and of the errors that caused it; undefined if there are none. */
export function errorStack(error: unknown): string | undefined {
  const stacks: string[] = []
  for (let one = error; one instanceof Error && stacks.length < causesMax; one = one.cause) {
    const frames = one.stack?.slice(one.stack.indexOf('\n    at ') + 1) ?? ''
    stacks.push(`${one.name}: ${messageOf(one)}${frames === '' ? '' : `\n${frames}`}`)
  }
  return stacks.length === 0 ? undefined : stacks.join('\ncaused by ')
}

const causesMax = 5
const genericNames = new Set(['Error', 'TransientReplyError', 'MongoServerSelectionError'])

function reasonOf(error: unknown): string {
  // The driver passes on the TimeoutError of tandem's own deadline.
  if (error instanceof DOMException && error.name === 'TimeoutError') return 'no answer in time'
  const { code, codeName } = (error ?? {}) as { code?: unknown; codeName?: unknown }
  if (typeof code === 'number') return `${serverCode(code, codeName)}: ${messageOf(error)}`
  if (!(error instanceof Error)) return 'an unknown error'
  return genericNames.has(error.name) ? messageOf(error) : `${error.name}: ${messageOf(error)}`
}

function messageOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error)
  const { command } = circumstancesOf(error)
  const isReply = typeof (error as { code?: unknown }).code === 'number'
  if (isReply && command !== undefined && commandsWithDocuments.has(command)) {
    return withoutValues(error.message.split(':', 1)[0] as string)
  }
  return withoutValues(error.message)
}

/** Removes the content of braces and double quotes, in which servers quote documents, keys and values. */
export function withoutValues(text: string): string {
  let shown = ''
  let depth = 0
  let quoted = false
  for (let at = 0; at < text.length; at++) {
    const character = text[at] as string
    if (quoted) {
      if (character === '\\') at += 1
      else if (character === '"') quoted = false
      continue
    }
    if (character === '"') quoted = true
    else if (character === '{') depth += 1
    else if (character === '}' && depth > 0) depth -= 1
    else {
      if (depth === 0) shown += character
      continue
    }
    if (depth === 0 || (depth === 1 && character === '{')) shown += opening[character] ?? ''
  }
  return shown
}

const opening: Record<string, string> = { '"': '"…"', '{': '{…}' }
