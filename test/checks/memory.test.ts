import { expect, it } from 'vitest'
import { availableMemory, refuseLittleMemory } from '../../src/checks/memory.ts'

const mebibyte = 1024 * 1024

it('2.4: too little memory for the verifier is refused by name, with how much there is and the remedy', () => {
  expect(() => refuseLittleMemory(255 * mebibyte)).toThrow(
    expect.objectContaining({
      refusal: 'InsufficientMemory',
      status: 422,
      message: expect.stringMatching(/256 MiB.* 255 MiB are available.*"verification": \{"enabled": false\}/),
    }),
  )
  expect(() => refuseLittleMemory(256 * mebibyte)).not.toThrow()
})

it('what is available is what the machine has, or the container', () => {
  expect(availableMemory()).toBeGreaterThan(0)
  expect(availableMemory()).toBeLessThan(2 ** 50)
})
