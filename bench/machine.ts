import os from 'node:os'
import { resolveMongod } from '../test/support/mongo-binaries.ts'
import { type ServerSettings, serverSettings } from './servers.ts'

export interface MachineFacts extends ServerSettings {
  cpu: string
  cores: number
  memoryGB: number
  /**
   * Load average over the last minute before the first measurement. A value above about 0.3 means that something else
   * was running.
   */
  loadAverage: number
  kernel: string
  node: string
  mongod: string
}

/** Returns the facts about machine, software and settings that a reader needs to interpret the figures. */
export async function machineFacts(options: { cacheSizeGB: number }): Promise<MachineFacts> {
  const cpus = os.cpus()
  return {
    cpu: cpus[0]?.model.trim() ?? 'unknown',
    cores: cpus.length,
    memoryGB: Math.round(os.totalmem() / 2 ** 30),
    loadAverage: Math.round((os.loadavg()[0] ?? 0) * 100) / 100,
    kernel: `${os.type()} ${os.release()}`,
    node: process.version,
    mongod: (await resolveMongod()).version,
    ...serverSettings(options),
  }
}

export function machineLines(machine: MachineFacts): string {
  return [
    '',
    `${machine.cpu}, ${machine.cores} cores, ${machine.memoryGB} GB, ${machine.kernel}, load average before the first measurement ${machine.loadAverage}`,
    `node ${machine.node}; mongod ${machine.mongod}, two replica sets on 127.0.0.1, single-node unless said otherwise (the section sharded: shards with their own settings), ` +
      `cache ${machine.cacheSizeGB} GB and oplog ${machine.oplogSizeMB} MB each`,
    '',
  ].join('\n')
}
