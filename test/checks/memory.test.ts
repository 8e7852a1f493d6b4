import { expect, it } from 'vitest'
import { availableMemory, refuseLittleMemory } from '../../src/checks/memory.ts'

const mebibyte = 1024 * 1024

it('2.4: start is refused with InsufficientMemory, the available amount and the remedy if the verifier has too little memory', () => {
  expect(() => refuseLittleMemory(255 * mebibyte)).toThrow(
    expect.objectContaining({
      refusal: 'InsufficientMemory',
      status: 422,
      message: expect.stringMatching(/256 MiB.* 255 MiB are available.*"verification": \{"enabled": false\}/),
    }),
  )
  expect(() => refuseLittleMemory(256 * mebibyte)).not.toThrow()
})

it('the available memory is a plausible number of bytes', () => {
  expect(availableMemory()).toBeGreaterThan(0)
  expect(availableMemory()).toBeLessThan(2 ** 50)
})
