import { type Binary, UUID } from 'mongodb'

/** tandem represents collection UUIDs as 16 bytes of latin1 text, because these are cheap map keys. */
export function toUuid(latin1: string): UUID {
  return new UUID(Buffer.from(latin1, 'latin1'))
}

export function fromUuid(uuid: Binary): string {
  return Buffer.from(uuid.buffer).latin1Slice(0, 16)
}
