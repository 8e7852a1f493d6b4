import { expect, it } from 'vitest'
import type { NamespaceRename, StartConfiguration } from '../../src/domain/start-request.ts'
import { sameConfiguration } from '../../src/session/begin-sync.ts'

const rename = (from: string, to: string): NamespaceRename => ({ from: { database: from }, to: { database: to } })
const start = (...renames: NamespaceRename[]): StartConfiguration =>
  ({
    source: 'cluster0',
    writeBlockingGiven: false,
    namespaceRemap: renames.length > 0 ? renames : null,
  }) as StartConfiguration

it('the same renames in another order are the same start, and other renames are not', () => {
  const [shop, zoo] = [rename('shop', 'store'), rename('zoo', 'park')]
  expect(sameConfiguration(start(shop, zoo), start(zoo, shop))).toBe(true)
  expect(sameConfiguration(start(shop, zoo), start(rename('shop', 'park'), rename('zoo', 'store')))).toBe(false)
  expect(sameConfiguration(start(shop), start(shop, zoo))).toBe(false)
  expect(sameConfiguration(start(shop), start())).toBe(false)
  expect(sameConfiguration(start(), start())).toBe(true)
})
