import { BSON } from 'mongodb'
import { expect, it } from 'vitest'
import { findSpan } from '../../src/domain/raw-bson.ts'
import { describeId } from '../../src/mongo/verification-store.ts'

function idElement(_id: unknown): Buffer {
  const bytes = Buffer.from(BSON.serialize({ _id }))
  const span = findSpan(bytes, '_id')
  if (!span) throw new Error('no _id')
  return bytes.subarray(span.start, span.valueEnd)
}

it('a message shows at most 256 characters of an _id, as Extended JSON', () => {
  expect(describeId(idElement('short'))).toBe('"short"')
  expect(describeId(idElement(new BSON.Int32(7)))).toBe('{"$numberInt":"7"}')
  const long = describeId(idElement('x'.repeat(1_000_000)))
  expect(long).toBe(`"${'x'.repeat(255)}… (1000002 characters)`)
})
