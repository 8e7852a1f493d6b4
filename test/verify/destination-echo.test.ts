import { expect, it } from 'vitest'
import { DestinationEcho } from '../../src/verify/destination-echo.ts'

it('holds a change back until the stream of the destination has delivered what applying it wrote', () => {
  const echo = new DestinationEcho()
  expect(echo.comparable(10n, 100n, 90n, 0)).toBe(0n)
  expect(echo.comparable(20n, 200n, 99n, 10)).toBe(0n)
  expect(echo.comparable(20n, 200n, 100n, 20)).toBe(10n)
  expect(echo.comparable(20n, 200n, 199n, 30)).toBe(10n)
  expect(echo.comparable(20n, 200n, 200n, 40)).toBe(20n)
})

it('does not wait for a stream that says nothing', () => {
  const echo = new DestinationEcho()
  echo.comparable(10n, 100n, 0n, 0)
  expect(echo.comparable(10n, 100n, 0n, 1_001)).toBe(10n)
})

it('never passes what is applied', () => {
  const echo = new DestinationEcho()
  echo.comparable(10n, 100n, 0n, 0)
  expect(echo.comparable(5n, 100n, 100n, 10)).toBe(5n)
})
