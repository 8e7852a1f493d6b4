import { expect, it } from 'vitest'
import { caseKey } from '../../src/domain/database-case.ts'

it('names that differ in the case of a letter other than A to Z are different only on a replica set of 6.0', () => {
  const collide = (version: string, sharded: boolean, one: string, other: string): boolean =>
    caseKey({ version, sharded }, one) === caseKey({ version, sharded }, other)
  for (const version of ['6.0.27', '7.0.26', '8.0.17']) {
    for (const sharded of [false, true]) {
      expect(collide(version, sharded, 'Shop_1', 'sHOP_1')).toBe(true)
      expect(collide(version, sharded, 'École', 'éCOLE')).toBe(sharded || version !== '6.0.27')
      expect(collide(version, sharded, 'école', 'ecole')).toBe(false)
    }
  }
})
