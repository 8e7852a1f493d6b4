import { type Command, errorCode, forward } from './command.ts'
import { fieldNamed, readFields } from './fields.ts'

/** Forwards a command whose reply may hold a cursor, and remembers where it lives. */
export async function cursorFrom(command: Command, host: string, cursorHosts: Map<string, string>): Promise<Buffer> {
  return rememberCursor(await forward(command, host), host, cursorHosts)
}

export function rememberCursor(reply: Buffer, host: string, cursorHosts: Map<string, string>): Buffer {
  const cursor = fieldNamed(readFields(reply), 'cursor')
  const id = cursor && fieldNamed(readFields(cursor.value), 'id')
  if (id && id.value.readBigInt64LE() !== 0n) cursorHosts.set(String(id.value.readBigInt64LE()), host)
  return reply
}

/** As text: JavaScript's numbers are too small for it. */
export function cursorIdOf({ fields }: Command): string {
  return String(fields[0]?.value.readBigInt64LE())
}

const cursorNotFound = 43

/** Writes a line to the log for a reply that says so: a client has asked the wrong router, or one that was restarted. */
export function logLostCursor(name: string, cursor: string, reply: Buffer): void {
  if (errorCode(reply) === cursorNotFound) process.stderr.write(`${name} ${cursor}: CursorNotFound\n`)
}
