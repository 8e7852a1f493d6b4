import zlib from 'node:zlib'
import { expect, test } from 'vitest'
import { compressorProblems } from '../../src/cli/compressors.ts'
import { parseCommandLine } from '../../src/cli/options.ts'

const uri = 'mongodb://root:hunter2@db.test/?compressors=zstd,snappy,zlib'

test('a compressor is refused if its library cannot be loaded, and the message names the compressor and the package to install', () => {
  const asked: string[] = []
  const problems = compressorProblems('cluster1', uri, (library) => {
    asked.push(library.package)
    return false
  })
  expect(asked).toEqual(['@mongodb-js/zstd', 'snappy'])
  expect(problems).toEqual([
    'cluster1: Invalid URI option, compressors: zstd needs Node.js 22.15 or later, or the package @mongodb-js/zstd, which cannot be loaded; install it where tandem is installed (npm install @mongodb-js/zstd), or remove zstd from compressors',
    'cluster1: Invalid URI option, compressors: snappy needs the package snappy, which cannot be loaded; install it where tandem is installed (npm install snappy), or remove snappy from compressors',
  ])
})

test('compressors whose libraries can be loaded are accepted; zlib and none need no library', () => {
  expect(compressorProblems('cluster0', uri, () => true)).toEqual([])
  expect(compressorProblems('cluster0', 'mongodb://db.test/?compressors=zlib,none', () => false)).toEqual([])
  expect(compressorProblems('cluster0', 'mongodb://db.test/', () => false)).toEqual([])
})

test.each(['serve', 'verify'])('%s loads the libraries that both connection strings name', (command) => {
  const args = [
    '--cluster0',
    'mongodb://a.test/?compressors=snappy',
    '--cluster1',
    'mongodb://b.test/?compressors=zstd',
  ]
  const parsed = parseCommandLine(command === 'serve' ? args : [command, ...args], {})
  // The development dependencies contain snappy; zstd is in Node.js since 22.15.
  if ('zstdCompress' in zlib) return expect(parsed.kind).toBe(command)
  expect(parsed).toMatchObject({
    kind: 'print',
    exitCode: 2,
    text: expect.stringMatching(/^error: cluster1: Invalid URI option, compressors: zstd needs Node\.js 22\.15/),
  })
})
