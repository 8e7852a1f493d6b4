import { expect, it } from 'vitest'
import { inSlices } from '../../src/domain/in-slices.ts'

const busyFor = (milliseconds: number): void => {
  const began = performance.now()
  while (performance.now() - began < milliseconds);
}

it('converts every item in order', async () => {
  const items = Array.from({ length: 1_000 }, (_, at) => at)
  expect(await inSlices(items, (at) => at * 2)).toEqual(items.map((at) => at * 2))
  expect(await inSlices([], () => 1)).toEqual([])
})

it('lets other work run while many items are converted', async () => {
  let converted = 0
  const seen: number[] = []
  const watch = (): void => {
    seen.push(converted)
    if (converted < 200) setImmediate(watch)
  }
  setImmediate(watch)
  await inSlices(Array.from({ length: 200 }, Number), () => {
    busyFor(1)
    converted += 1
  })
  expect(seen.filter((count) => count > 0 && count < 200).length).toBeGreaterThan(1)
})

it('rejects with the error of an item', async () => {
  const fail = (): never => {
    throw new Error('unreadable')
  }
  await expect(inSlices([1], fail)).rejects.toThrow('unreadable')
})
