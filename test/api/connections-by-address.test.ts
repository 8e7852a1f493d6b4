import { EventEmitter } from 'node:events'
import { expect, test, vi } from 'vitest'
import { ConnectionsByAddress } from '../../src/api/connections-by-address.ts'

/** Returns the parts of a socket that the class uses. `close` emits the close event of the socket. */
function socket(remoteAddress: string | undefined) {
  const emitter = new EventEmitter()
  const destroy = vi.fn()
  const close = (): void => void emitter.emit('close')
  return Object.assign(emitter, { remoteAddress, destroy, close }) as unknown as Parameters<
    ConnectionsByAddress['admit']
  >[0] & { destroy: typeof destroy; close: () => void }
}

test('an address has at most the maximum number of connections, and can open new ones after others are closed', () => {
  const connections = new ConnectionsByAddress(2)
  const [first, second, third, other] = ['10.0.0.1', '10.0.0.1', '::ffff:10.0.0.1', '10.0.0.2'].map(socket)
  if (!first || !second || !third || !other) throw new Error('unreachable')
  expect([first, second, third, other].map((one) => connections.admit(one))).toEqual([true, true, false, true])
  expect([first, second, third, other].map((one) => one.destroy.mock.calls.length)).toEqual([0, 0, 1, 0])
  // A refused connection does not count, so its close frees nothing.
  third.close()
  expect(connections.admit(socket('10.0.0.1'))).toBe(false)
  first.close()
  expect(connections.admit(socket('10.0.0.1'))).toBe(true)
  expect(connections.admit(socket('10.0.0.1'))).toBe(false)
})

test('all addresses of one IPv6 host count as one address', () => {
  const connections = new ConnectionsByAddress(1)
  expect(connections.admit(socket('2001:db8:0:1::1'))).toBe(true)
  expect(connections.admit(socket('2001:db8:0:1:ffff::2'))).toBe(false)
  expect(connections.admit(socket('2001:db8:0:2::1'))).toBe(true)
})

test.each(['127.0.0.1', '127.9.9.9', '::1', '::ffff:127.0.0.1', undefined])('%s is not limited', (address) => {
  const connections = new ConnectionsByAddress(1)
  for (let made = 0; made < 3; made += 1) expect(connections.admit(socket(address))).toBe(true)
  expect(connections.size).toBe(0)
})

test('the counter of an address without connections is removed', () => {
  const connections = new ConnectionsByAddress(3)
  const made = Array.from({ length: 300 }, (_, at) => socket(`10.0.${at % 100}.1`))
  for (const one of made) connections.admit(one)
  expect(connections.size).toBe(100)
  for (const one of made) one.close()
  expect(connections.size).toBe(0)
})
