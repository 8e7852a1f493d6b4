import { chmodSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { expect, test } from 'vitest'
import { refused } from '../api/parsed.ts'
import { repositoryRoot } from '../support/mongo-binaries.ts'
import { tlsPem } from '../support/tls/files.ts'

/** Each combination of options in the table of docs/cli.md is refused with an error that names the options. */

const folder = mkdtempSync(path.join(tmpdir(), 'tandem-exclusions-'))
function file(name: string, text: string): string {
  const at = path.join(folder, name)
  writeFileSync(at, text)
  chmodSync(at, 0o600)
  return at
}
const token = 'x'.repeat(32)
const tokenFile = file('token', token)
const pem = file('server.pem', tlsPem.server)

const instance = ['--cluster0', 'mongodb://a/', '--cluster1', 'mongodb://b/']
const urls = ['--url', 'http://localhost:1', '--url', 'http://localhost:2']

/** Maps the first cell of each row to the command lines that are refused and to the options that their errors name. */
const cases: Record<string, [argv: string[], named: RegExp][]> = {
  '`--table` and `--json`': [[['progress', '--table', '--json'], /'--table'.*'--json'/]],
  '`--all` and several `--url`': ['pause', 'resume', 'commit', 'abort', 'reverse'].map((command) => [
    [command, '--all', ...urls],
    /--all: .*one --url/,
  ]),
  '`--token` and `--tokenFile`': [
    [['progress', `--token=${token}`, `--tokenFile=${tokenFile}`], /--token or --tokenFile/],
    [[...instance, `--token=${token}`, `--tokenFile=${tokenFile}`], /--token or --tokenFile/],
  ],
  '`--body` and other options of `start` or `check`': [
    ...[
      ...['--source=cluster0', '--destination=cluster1', '--buildIndexes=never', '--enableUserWriteBlocking=none'],
      ...['--reversible', '--no-verification', '--existingData=converge', '--skipDiskSpaceCheck', '--include=shop'],
      ...['--copyInNaturalOrder=shop', '--no-detectRandomId'],
      ...['--remap=shop=store', '--exclude=shop', '--shardKey=none', '--createSupportingIndexes'],
    ].flatMap((option): [string[], RegExp][] => {
      const named = new RegExp(`'--body .*'${option.replace(/=.*/, '')}[ ']`)
      return [
        [['start', '--body={}', option], named],
        [['check', '--body={}', option], named],
      ]
    }),
  ],
  '`--body` and other options of `filter`': [
    [['filter', '--body={}', '--dropExcluded'], /'--body .*'--dropExcluded'/],
    [['filter', '--body={}', '--includeNamespaces=[]'], /'--body .*'--includeNamespaces /],
    [['filter', '--body={}', '--excludeNamespaces=[]'], /'--body .*'--excludeNamespaces /],
  ],
  '`--shardKey none` and another `--shardKey`': [
    [['start', '--shardKey=none', '--shardKey=shop.a=b:1'], /--shardKey .*none/],
    [['start', '--shardKey=shop.a=b:1', '--shardKey=none'], /--shardKey .*none/],
  ],
  'two `--shardKey` for one collection': [
    [['start', '--shardKey=a.b=c:1', '--shardKey=a.b=d:1'], /--shardKey .*already/],
  ],
  '`--createSupportingIndexes` without `--shardKey`': [
    [['start', '--createSupportingIndexes'], /--createSupportingIndexes .*--shardKey/],
  ],
  '`--dropExcluded` without a list or `--body` (`filter`)': [
    [['filter', '--dropExcluded'], /--includeNamespaces, --excludeNamespaces or --body/],
  ],
  '`--dry-run` and `--yes` (`clean`)': [[['clean', ...instance, '--dry-run', '--yes'], /'--dry-run'.*'-y, --yes'/]],
  '`--reverse` without `--blockWrites` (`rehearse`)': [
    [['rehearse', ...instance, '--reverse'], /--reverse .*--blockWrites/],
  ],
  '`--readTokenFile` without `--tokenFile` or `--token`': [
    [[...instance, `--readTokenFile=${tokenFile}`], /--readTokenFile: .*--tokenFile/],
  ],
  '`--tlsKey` without `--tlsCert`': [[[...instance, `--tlsKey=${pem}`], /--tlsKey: .*--tlsCert/]],
  '`--redisTlsKey` without `--redisTlsCert`': [
    [[...instance, '--redis=rediss://r', `--redisTlsKey=${pem}`], /--redisTlsKey: .*--redisTlsCert/],
  ],
  '`--redisTlsCAFile`, `--redisTlsCert` without `--redis rediss://…`': [
    [[...instance, `--redisTlsCAFile=${pem}`], /--redisTlsCAFile: .*--redis rediss/],
    [[...instance, '--redis=redis://r', `--redisTlsCert=${pem}`], /--redisTlsCert: .*--redis rediss/],
  ],
  '`--bind` with an address other than loopback, without `--tlsCert` and a token': [
    [[...instance, '--bind=0.0.0.0'], /--bind: .*--tlsCert .*--tokenFile/],
    [[...instance, '--bind=0.0.0.0', `--tlsCert=${pem}`], /--bind: .*--tokenFile/],
    [[...instance, '--bind=0.0.0.0', `--tokenFile=${tokenFile}`], /--bind: .*--tlsCert/],
  ],
}

const page = readFileSync(path.join(repositoryRoot, 'docs/cli.md'), 'utf8')
const section = page.slice(page.indexOf('## Options that exclude each other'))
const table = section.slice(0, section.indexOf('\n## '))
const rows = [...table.matchAll(/^\| (.*?) \| .* \|$/gm)].map(([, first = '']) => first).slice(2)

test('the table has one row for each case, and no other rows', () => {
  expect(rows).toEqual(Object.keys(cases))
})

const all = Object.values(cases).flat()

test.each(all)('%j is refused with an error that names the options', (argv, named) => {
  const text = refused(argv)
  expect(text).toMatch(/^error: /)
  expect(text).toMatch(named)
})

test('--body is accepted with the options for addresses, access and output format', () => {
  const shared = ['--url=http://localhost:1', `--token=${token}`, '--json']
  for (const command of ['start', 'check', 'filter']) expect(() => refused([command, '--body={}', ...shared])).toThrow()
  expect(() => refused(['check', '--body={}', '--fail-on=warning'])).toThrow()
})
