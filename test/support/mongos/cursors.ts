import { type Command, errorCode, forward } from './command.ts'
import { fieldNamed, readFields } from './fields.ts'

/** Forwards a command whose reply may contain a cursor, and remembers the cursor's host. */
export async function cursorFrom(command: Command, host: string, cursorHosts: Map<string, string>): Promise<Buffer> {
  return rememberCursor(await forward(command, host), host, cursorHosts)
}

export function rememberCursor(reply: Buffer, host: string, cursorHosts: Map<string, string>): Buffer {
  const cursor = fieldNamed(readFields(reply), 'cursor')
  const id = cursor && fieldNamed(readFields(cursor.value), 'id')
  if (id && id.value.readBigInt64LE() !== 0n) cursorHosts.set(String(id.value.readBigInt64LE()), host)
  return reply
}

/** Returns the cursor id as text, because JavaScript numbers cannot represent it. */
export function cursorIdOf({ fields }: Command): string {
  return String(fields[0]?.value.readBigInt64LE())
}

const cursorNotFound = 43

/** Logs a CursorNotFound reply, which means that a client used the wrong mongos or one that was restarted. */
export function logLostCursor(name: string, cursor: string, reply: Buffer): void {
  if (errorCode(reply) === cursorNotFound) process.stderr.write(`${name} ${cursor}: CursorNotFound\n`)
}
