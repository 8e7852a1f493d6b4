import { mkdirSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { guardPath, removeGuardedPath } from './guarded-process.ts'

/**
 * The range is below Linux's ephemeral ports (from 32768), so that no outgoing connection takes a port between claim and
 * use.
 */
const firstPort = 20_000
const portCount = 10_000

export interface ClaimedPorts {
  ports: number[]
  release(): void
}

/**
 * Claims ports of 127.0.0.1. No other process that uses this function gets them until they are released or this process ends.
 * A claim is an exclusively created file, so it also reserves the port while a server restarts and nothing is bound to it.
 */
export async function claimPorts(count: number): Promise<ClaimedPorts> {
  const folder = path.join(os.tmpdir(), 'tandem-ports')
  mkdirSync(folder, { recursive: true })
  const claims = new Map<number, string>()
  const start = Math.floor(Math.random() * portCount)
  for (let step = 0; claims.size < count; step++) {
    if (step === portCount) {
      for (const file of claims.values()) removeGuardedPath(file)
      throw new Error(
        `there are no ${count} free ports in ${firstPort}–${firstPort + portCount - 1}; the claims are in ${folder}`,
      )
    }
    const port = firstPort + ((start + step) % portCount)
    const file = path.join(folder, String(port))
    if (!createExclusively(file)) continue
    guardPath(file)
    if (await canListen(port)) claims.set(port, file)
    else removeGuardedPath(file)
  }
  return {
    ports: [...claims.keys()],
    release: () => {
      for (const file of claims.values()) removeGuardedPath(file)
      claims.clear()
    },
  }
}

function createExclusively(file: string): boolean {
  try {
    writeFileSync(file, String(process.pid), { flag: 'wx' })
    return true
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false
    throw error
  }
}

function canListen(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer()
    server.once('error', () => resolve(false))
    server.listen(port, '127.0.0.1', () => server.close(() => resolve(true)))
  })
}
