/**
 * Downloads one server: `mongo-download-main.ts <target folder> <version> [distribution]`. It is a separate program because
 * the downloader has no time limit and cannot be cancelled; mongo-download.ts kills this process instead.
 */
import { cpSync } from 'node:fs'
import path from 'node:path'
import { downloadMongoDb } from '@mongodb-js/mongodb-downloader'

const [target, version, distribution] = process.argv.slice(2)
if (!target || !version) throw new Error('usage: mongo-download-main.ts <target folder> <version> [distribution]')

const bin = await downloadMongoDb({
  directory: path.join(target, 'download'),
  version,
  useLockfile: false, // mongo-binaries.ts holds a lock, and no other process uses this target.
  ...(distribution ? { downloadOptions: { distro: distribution } } : {}),
})
cpSync(bin, path.join(target, 'bin'), { recursive: true })
