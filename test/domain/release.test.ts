import { expect, test } from 'vitest'
import { isOlderSeries, seriesOf } from '../../src/domain/release.ts'

test.each([
  ['6.0.27', '6.0'],
  ['8.2.0-rc1', '8.2'],
  ['10.0.1', '10.0'],
  ['', ''],
])('the release series of %j is %j', (version, series) => expect(seriesOf(version)).toBe(series))

test.each([
  ['6.0.27', '7.0.0', true],
  ['8.0.17', '8.2.0', true],
  ['9.0.0', '10.0.0', true],
  ['6.0.17', '6.0.27', false],
  ['8.2.0', '8.0.17', false],
  ['10.0.0', '9.0.0', false],
])('%s belongs to an older series than %s: %j', (version, than, older) =>
  expect(isOlderSeries(version, than)).toBe(older),
)
