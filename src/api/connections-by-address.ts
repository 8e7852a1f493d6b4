import type { Socket } from 'node:net'
import { networkOf } from './failed-tokens.ts'

/**
 * Limits the connections of each address. Otherwise one address could use up all connections, and those of other
 * addresses would be closed as soon as they are made. Connections over loopback are not counted.
 */
export class ConnectionsByAddress {
  readonly #max: number
  /** Number of open connections by address. Contains only addresses that have at least one. */
  readonly #connections = new Map<string, number>()

  /** @param max maximum number of connections for one address (for IPv6: for its first 64 bits) */
  constructor(max: number) {
    this.#max = max
  }

  /** Number of addresses in memory. */
  get size(): number {
    return this.#connections.size
  }

  /**
   * Counts a connection until it is closed. If the address has reached its limit, closes the connection and returns
   * false.
   */
  admit(socket: Pick<Socket, 'remoteAddress' | 'once' | 'destroy'>): boolean {
    const { remoteAddress } = socket
    // A socket without an address is already closed, or is not a network connection.
    if (remoteAddress === undefined || isLoopback(remoteAddress)) return true
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

/** True for loopback addresses, also for IPv4 ones that are mapped into IPv6. */
function isLoopback(remoteAddress: string): boolean {
  return remoteAddress === '::1' || networkOf(remoteAddress).startsWith('127.')
}
