import { readShardStatus } from '../mongo/destination-pressure.ts'
import { type Check, ifAllowed } from './check.ts'
import { shardsNotReadable } from './shards-not-readable.ts'

/** Finds shards of the destination whose load the copy cannot observe. */
export const checkShardLoad: Check = async ({ destination }) =>
  destination.sharded ? shardsNotReadable('destination', await ifAllowed(readShardStatus(destination))) : []
