import { createRequire } from 'node:module'
import { ObjectId } from 'mongodb'
import type { TypedValue } from '../domain/raw-bson.ts'

/**
 * Everything that leans on the driver's inside, in one file: the driver offers no public way to send bytes it did not
 * encode itself. The driver's version is pinned exactly; test/mongo/raw-values.mongo.test.ts fails when an upgrade
 * changes what is relied on here.
 */
interface DriverDocumentSequence {
  toBin(): Uint8Array
}
const { DocumentSequence } = createRequire(import.meta.url)('mongodb/lib/cmap/commands.js') as {
  DocumentSequence: new (field: string) => DriverDocumentSequence
}

/**
 * A kind-1 section of OP_MSG: the driver places its bytes verbatim after the command's body
 * (https://www.mongodb.com/docs/manual/reference/mongodb-wire-protocol/#kind-1--document-sequence). The section is laid
 * out here in one piece; the driver's own way costs an object and a list entry per document.
 */
class RawSequence extends DocumentSequence {
  readonly #section: Buffer
  constructor(field: string, documents: Buffer[], from: number, to: number) {
    super(field)
    let length = 1 + 4 + field.length + 1
    for (let at = from; at < to; at++) length += (documents[at] as Buffer).length
    const section = Buffer.allocUnsafe(length)
    section[0] = 1
    section.writeInt32LE(length - 1, 1)
    let position = 5 + section.write(field, 5, 'latin1')
    section[position++] = 0
    for (let at = from; at < to; at++) position += (documents[at] as Buffer).copy(section, position)
    this.#section = section
  }
  override toBin(): Uint8Array {
    return this.#section
  }
}

/** Documents [from, to) as the given field of a write command. */
export function rawSequence(
  field: 'documents' | 'updates' | 'deletes',
  documents: Buffer[],
  from = 0,
  to = documents.length,
): object {
  return new RawSequence(field, documents, from, to)
}

const someObjectId = new ObjectId('000000000000000000000000')

/**
 * A value of any BSON type inside a command document, sent as the bytes it was read as. js-bson asks an ObjectId to
 * write itself (`serializeInto(buffer, index)`) right after it wrote the type byte and the element's name; this one
 * writes its own bytes and puts its own type in front of the name.
 */
export class RawValue extends ObjectId {
  readonly #typed: TypedValue
  constructor(typed: TypedValue) {
    super(someObjectId)
    this.#typed = typed
  }
  /** @internal called by js-bson */
  serializeInto(target: Uint8Array, index: number): number {
    // The type byte js-bson wrote stands before the name, which ends at index - 2. Raw values are only ever placed under
    // names of ours (command fields, array indexes), none of which holds the byte 0x07.
    let typeAt = index - 2
    while (target[typeAt] !== objectIdType) typeAt--
    target[typeAt] = this.#typed[0] as number
    target.set(this.#typed.subarray(1), index)
    return this.#typed.length - 1
  }
}
const objectIdType = 0x07
