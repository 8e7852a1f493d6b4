import { afterEach, expect, it, vi } from 'vitest'
import { givenUp, LeaseWatch, leaseMS } from '../../src/mongo/lease-watch.ts'

let now = 0
const clock = vi.spyOn(performance, 'now').mockImplementation(() => now)
afterEach(() => {
  clock.mockClear()
})

const lease = (epoch: number, expiresAt: number) => ({ epoch, expiresAt: new Date(expiresAt) })

it('a lease counts as not renewed once it was observed unchanged for the lease duration, regardless of its stored expiry', () => {
  const watch = new LeaseWatch()
  now = 1_000
  expect(watch.isUnrenewed('a', lease(1, 5))).toBe(false)
  now += leaseMS - 1
  expect(watch.isUnrenewed('a', lease(1, 5))).toBe(false)
  now += 1
  expect(watch.isUnrenewed('a', lease(1, 5))).toBe(true)
  expect(watch.isUnrenewed('b', lease(1, 5))).toBe(false)
})

it('each renewal and each new epoch restarts the observation, even if a clock that was set back stores an earlier expiry', () => {
  const watch = new LeaseWatch()
  for (const renewed of [lease(1, 50_000), lease(1, 60_000), lease(1, 10), lease(2, 10)]) {
    expect(watch.isUnrenewed('a', renewed)).toBe(false)
    now += leaseMS - 1
    expect(watch.isUnrenewed('a', renewed)).toBe(false)
  }
  now += 1
  expect(watch.isUnrenewed('a', lease(2, 10))).toBe(true)
})

it('a lease that its holder has released counts as not renewed at once', () => {
  expect(new LeaseWatch().isUnrenewed('a', { epoch: 1, expiresAt: givenUp })).toBe(true)
})
