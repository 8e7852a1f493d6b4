import { accessSync, constants, statfsSync } from 'node:fs'
import os from 'node:os'

const memory = '/dev/shm'
const variable = 'TANDEM_TEST_DATA'
/** What two workers with two sharded clusters each use, several times over. */
const minimumFreeBytes = 6 * 1024 ** 3

/** Lets the servers of this process and of its workers keep their data in memory if the machine has enough of it. */
export function keepDataInMemory(): void {
  if (process.env[variable] === undefined && hasRoom(memory)) process.env[variable] = memory
}

/**
 * Returns the folder for the data of temporary servers. In memory, a write waits for no disk, and the fsync of each
 * journal flush costs nothing. Benchmarks and the demo keep the data on disk.
 */
export function dataRoot(): string {
  return process.env[variable] ?? os.tmpdir()
}

function hasRoom(folder: string): boolean {
  try {
    accessSync(folder, constants.W_OK)
    const { bavail, bsize } = statfsSync(folder)
    return Math.min(bavail * bsize, os.freemem()) >= minimumFreeBytes
  } catch {
    return false
  }
}
