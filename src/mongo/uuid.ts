import { type Binary, UUID } from 'mongodb'

/** Collection UUIDs are 16 bytes as latin1 text everywhere inside tandem: cheap keys for maps. */
export function toUuid(latin1: string): UUID {
  return new UUID(Buffer.from(latin1, 'latin1'))
}

export function fromUuid(uuid: Binary): string {
  return Buffer.from(uuid.buffer).latin1Slice(0, 16)
}
