import { printable } from '../domain/printable.ts'

const colours: Record<string, string> = { warn: '\u001b[33m', error: '\u001b[31m', fatal: '\u001b[31m' }
const plain = '\u001b[0m'

/** A log line for people: `07:15:15.123 INFO  state: state=RUNNING`. The time is UTC, as in the JSON line. */
export function prettyLine(json: string, inColour: boolean): string {
  const { level, time, message, mongosyncID: _id, ...fields } = JSON.parse(json) as Record<string, unknown>
  const name = String(level)
  const shown = Object.entries(fields).map(
    ([field, value]) => `${field}=${typeof value === 'string' ? value : JSON.stringify(value)}`,
  )
  const text = printable(
    `${String(time).slice(11, 23)} ${name.toUpperCase().padEnd(5)} ${String(message)}${shown.length > 0 ? ': ' : ''}${shown.join(' ')}`,
  )
  const colour = inColour ? colours[name] : undefined
  return colour === undefined ? `${text}\n` : `${colour}${text}${plain}\n`
}
