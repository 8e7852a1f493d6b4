import { type Binary, UUID } from 'mongodb'

/** tandem represents collection UUIDs as 16 bytes of latin1 text, because these are cheap map keys. */
export function toUuid(latin1: string): UUID {
  return new UUID(Buffer.from(latin1, 'latin1'))
}

export function fromUuid(uuid: Binary): string {
  return Buffer.from(uuid.buffer).latin1Slice(0, 16)
}

/** Returns the UUID as hexadecimal digits, which JSON can contain. */
export function hexOfUuid(latin1: string): string {
  return Buffer.from(latin1, 'latin1').toString('hex')
}

export function uuidOfHex(hex: string): string {
  return Buffer.from(hex, 'hex').latin1Slice(0, 16)
}
