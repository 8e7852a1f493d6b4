import { expect, it } from 'vitest'
import { DestinationEcho } from '../../src/verify/destination-echo.ts'

it('delays comparing a change until the destination stream has delivered the write that applied it', () => {
  const echo = new DestinationEcho()
  expect(echo.comparable(10n, 100n, 90n, 0)).toBe(0n)
  expect(echo.comparable(20n, 200n, 99n, 10)).toBe(0n)
  expect(echo.comparable(20n, 200n, 100n, 20)).toBe(10n)
  expect(echo.comparable(20n, 200n, 199n, 30)).toBe(10n)
  expect(echo.comparable(20n, 200n, 200n, 40)).toBe(20n)
})

it('does not wait longer than a second for a stream without events', () => {
  const echo = new DestinationEcho()
  echo.comparable(10n, 100n, 0n, 0)
  expect(echo.comparable(10n, 100n, 0n, 1_001)).toBe(10n)
})

it('never returns a time later than the applied time', () => {
  const echo = new DestinationEcho()
  echo.comparable(10n, 100n, 0n, 0)
  expect(echo.comparable(5n, 100n, 100n, 10)).toBe(5n)
})
