import type { Socket } from 'node:net'
import { networkOf } from './failed-tokens.ts'

/**
 * How many connections each address has. One address may not use up what all have together: the connections of others would be closed
 * as soon as they are made. Clients that come over loopback are not counted by address.
 */
export class ConnectionsByAddress {
  readonly #max: number
  /** No more entries than there are connections. */
  readonly #connections = new Map<string, number>()

  /** @param max of one address (of IPv6 its first 64 bits) */
  constructor(max: number) {
    this.#max = max
  }

  /** Addresses in memory. */
  get size(): number {
    return this.#connections.size
  }

  /** Counts a connection until it is closed. False when its address has as many as it may: then it is closed and not counted. */
  admit(socket: Pick<Socket, 'remoteAddress' | 'once' | 'destroy'>): boolean {
    const { remoteAddress } = socket
    // Without one it is closed already, or no connection between machines.
    if (remoteAddress === undefined || isOwn(remoteAddress)) return true
    const network = networkOf(remoteAddress)
    const connections = this.#connections.get(network) ?? 0
    if (connections >= this.#max) {
      socket.destroy()
      return false
    }
    this.#connections.set(network, connections + 1)
    socket.once('close', () => this.#closed(network))
    return true
  }

  #closed(network: string): void {
    const left = (this.#connections.get(network) ?? 0) - 1
    if (left > 0) this.#connections.set(network, left)
    else this.#connections.delete(network)
  }
}

/** Loopback, also as an IPv4 address that is mapped into IPv6. */
function isOwn(remoteAddress: string): boolean {
  return remoteAddress === '::1' || networkOf(remoteAddress).startsWith('127.')
}
