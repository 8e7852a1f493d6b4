import { type Binary, UUID } from 'mongodb'

/**
 * tandem represents the UUID of a collection as a string of 16 characters, one for each byte (latin1), because a string
 * is a cheap map key. These functions convert between this form, the driver's type, and hexadecimal digits.
 */

export function toUuid(latin1: string): UUID {
  return new UUID(Buffer.from(latin1, 'latin1'))
}

/** Returns the latin1 form of a UUID in a server's reply. */
export function fromUuid(uuid: Binary): string {
  return Buffer.from(uuid.buffer).latin1Slice(0, 16)
}

/** Returns the UUID as 32 hexadecimal digits without hyphens, for example for a `ConvergenceScope`. */
export function hexOfUuid(latin1: string): string {
  return Buffer.from(latin1, 'latin1').toString('hex')
}

export function uuidOfHex(hex: string): string {
  return Buffer.from(hex, 'hex').latin1Slice(0, 16)
}
