import { isOlderSeries } from './release.ts'

/**
 * Returns a text that is the same for two database names exactly if a cluster does not accept both because they differ
 * only in case.
 *
 * A replica set of 6.0 compares only the letters A to Z without regard to case: `École` and `école` can both exist
 * (measured on 6.0.27). The config server of a sharded cluster compares all letters (measured on 6.0.27), and a test of
 * a later server (jstests/core/repro/dbcase2.js) expects the same of its replica sets. That test does not say from which
 * release on, so all releases after 6.0 count as such.
 */
export function caseKey(cluster: { sharded: boolean; version: string }, database: string): string {
  const comparesAscii = !cluster.sharded && isOlderSeries(cluster.version, '6.1')
  return comparesAscii ? database.replace(/[A-Z]/g, (letter) => letter.toLowerCase()) : database.toLowerCase()
}
