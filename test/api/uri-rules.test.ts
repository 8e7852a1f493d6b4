import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import {
  certificateKeyFileOf,
  checkUri,
  redactUri,
  redactUris,
  shownUri,
  unverifiedOptionsOf,
} from '../../src/domain/uri-rules.ts'

describe('checkUri', () => {
  test.each([
    'mongodb://localhost',
    'mongodb://localhost:27017/',
    'mongodb://root:p%40ss@a.test:1,b.test:2/admin?replicaSet=rs&tls=true',
    'mongodb+srv://root:x@cluster.test/?authSource=admin',
    'mongodb://a/?readConcernLevel=majority&w=majority&readPreference=primary&wtimeoutMS=100',
    'mongodb://a/?ReadConcernLevel=majority&W=majority',
    'mongodb://a/?appName=w%3D1',
    'mongodb://a/?compressors=zstd,snappy,zlib&zlibCompressionLevel=-1',
    'mongodb://a/?Compressors=none&ZLIBCOMPRESSIONLEVEL=9',
    'mongodb://w=1:readPreference=secondary@a/',
    'mongodb://%2Ftmp%2Fmongodb.sock/',
    'mongodb://a%2Cb%3D%3Dc:x,,==@a.test/',
    'mongodb://root:x@a.test/?authMechanism=SCRAM-SHA-1',
    'mongodb://CN%3Da%2COU%3Db%2CO%3Dc@a.test/?authMechanism=MONGODB-X509',
  ])('%s is accepted', (uri) => {
    expect(checkUri('cluster0', uri)).toEqual([])
  })

  test.each([
    ['ro%2Cot%2C', '', /^cluster0: a user name with several commas.*give another user$/],
    ['=root=3D', '?authMechanism=SCRAM-SHA-256', /with =2C or =3D after another equals sign/],
    ['root%2C', '?authMechanism=SCRAM-SHA-1', /^cluster0: a user name with a comma or an equals sign.*SCRAM-SHA-1/],
    ['root=', '?authMechanism=scram-sha-1', /SCRAM-SHA-256$/],
  ])('the user %s%s is refused, because the driver would encode it incorrectly', (user, options, expected) => {
    const problems = checkUri('cluster0', `mongodb://${user}:hunter2@db.test/${options}`)
    expect(problems).toEqual([expect.stringMatching(expected)])
    expect(problems[0]).not.toMatch(/root|hunter2|db\.test/)
  })

  test.each([
    ['readConcernLevel=local', /Invalid URI option, read concern must be majority/],
    ['READCONCERNLEVEL=linearizable', /read concern must be majority/],
    ['w=1', /Invalid URI option, write concern must be majority/],
    ['w=0', /write concern must be majority/],
    ['w=majority&w=1', /write concern must be majority/],
    ['w=', /write concern must be majority/],
    ['readPreference=secondaryPreferred', /read preference must be primary/],
    ['readpreference=nearest', /read preference must be primary/],
    ['socketTimeoutMS=1000', /socketTimeoutMS is not supported/],
    ['sockettimeoutms=0', /socketTimeoutMS is not supported/],
    ['compressors=zlib,lz4', /Invalid URI option, compressors: lz4 is not a compressor; give snappy, zlib or zstd/],
    ['Compressors=ZLIB', /compressors: ZLIB is not a compressor/],
    ['compressors=', /compressors: a name in it is not a compressor/],
    ['compressors=a%1b[31m', /compressors: a name in it is not a compressor/],
    ['zlibCompressionLevel=10', /Invalid URI option, zlibCompressionLevel must be a whole number from -1 to 9/],
    ['zlibcompressionlevel=fast', /zlibCompressionLevel must be/],
  ])('%s is refused', (options, message) => {
    const uri = `mongodb://root:hunter2@db.test/?appName=x&${options}`
    const problems = checkUri('cluster1', uri)
    expect(problems).toHaveLength(1)
    expect(problems[0]).toMatch(message)
    expect(problems[0]).toMatch(/^cluster1: /)
    expect(problems[0]).not.toMatch(/root|hunter2|db\.test/)
  })

  test.each([
    '',
    'localhost',
    'http://root:hunter2@a',
    'mongodb://',
    'mongodb:/a',
    'mongodb://root:hunter2@',
    'mongodb://root:hun@ter2@a',
    'mongodb://ro[ot:hunter2@a',
    'mongodb+srv://root:hunter2@a:27017/',
    'mongodb+srv://root:hunter2@a,b/',
    'mongodb://root:hunter2%@a',
  ])('%j is refused because it is not a connection string, and the refusal does not repeat it', (uri) => {
    const problems = checkUri('cluster0', uri)
    expect(problems).toHaveLength(1)
    expect(problems[0]).toMatch(/^cluster0: not a MongoDB connection string; give /)
    expect(problems[0]).not.toMatch(/hunter2|hun@ter2|root/)
  })

  test('names every problem at once', () => {
    expect(checkUri('cluster0', 'mongodb://a/?w=1&readPreference=nearest&socketTimeoutMS=1')).toHaveLength(3)
  })
})

test('tandem reads the same values of connection-string options as the driver', () => {
  const uri = 'mongodb://a/?TLSInsecure=True&tlsCertificateKeyFile=/a+b%2B.pem#&tlsAllowInvalidHostnames=true'
  expect(certificateKeyFileOf(uri)).toBe('/a b+.pem')
  expect(unverifiedOptionsOf(uri)).toEqual(['tlsInsecure'])
  expect(certificateKeyFileOf('mongodb://a')).toBeNull()
})

describe('redactUri and redactUris', () => {
  test.each([
    ['mongodb://root:hunter2@a.test:1,b.test/admin?replicaSet=rs', 'mongodb://***@a.test:1,b.test/admin?replicaSet=rs'],
    ['mongodb+srv://root:hun@ter2@a.test/', 'mongodb+srv://***@a.test/'],
    ['mongodb://root:hun ter2@a.test/', 'mongodb://***@a.test/'],
    ['mongodb://a.test/?proxyPassword=hun ter2&w=majority', 'mongodb://a.test/?proxyPassword=***&w=majority'],
    ['rediss://root:hun ter2@a.test/0', 'rediss://***@a.test/0'],
    ['"mongodb://root:hunter2@a.test/"', '"mongodb://***@a.test/"'],
    [
      'mongodb://a.test/?tlsCertificateKeyFilePassword=hunter2&tls=true',
      'mongodb://a.test/?tlsCertificateKeyFilePassword=***&tls=true',
    ],
    [
      'mongodb://u:p@a/?authMechanismProperties=AWS_SESSION_TOKEN:hunter2@x&w=majority',
      'mongodb://***@a/?authMechanismProperties=***&w=majority',
    ],
    ['mongodb://u:p@a/?proxyPassword=a@hunter2', 'mongodb://***@a/?proxyPassword=***'],
    ['mongodb://localhost:27017', 'mongodb://localhost:27017'],
  ])('%s is shown as %s', (uri, shown) => {
    expect(redactUri(uri)).toBe(shown)
  })

  test('finds connection strings in text', () => {
    expect(
      redactUris('from mongodb://u:p@a to "MONGODB+SRV://u:q@b", then http://x:y@c/ at user@example.test'),
    ).not.toMatch(/u:p|u:q|x:y/)
    expect(redactUris('redis://:hunter2@r/0, rediss://root:hun@ter2@r, REDIS://r?password=hunter2')).toBe(
      'redis://***@r/0, rediss://***@r, REDIS://r?password=***',
    )
    expect(redactUris('write to a@b.test, see https://docs.test/page')).toBe(
      'write to a@b.test, see https://docs.test/page',
    )
  })

  test('property: every password is redacted', async () => {
    const password = fc.string({ minLength: 1 }).map((text) => `S3CR3T${encodeURIComponent(text)}T3RC3S`)
    await fc.assert(
      fc.property(password, fc.constantFrom('', '?w=majority', '?authSource=a@b'), (secret, options) => {
        const uri = `mongodb://user:${secret}@host.test/${options}`
        expect(redactUri(uri)).not.toContain('S3CR3T')
        expect(redactUris(`cannot reach ${uri}: refused`)).not.toContain('S3CR3T')
      }),
    )
  })

  /** The specification as regular expressions. On hostile text they take cubic time. */
  const reference = (text: string): string =>
    text.includes('://')
      ? text
          .replace(
            /([?&](?:[^=&\s]*(?:password|secret|token|proxyusername)[^=&\s]*|authMechanismProperties)=)[^&\s]*/gi,
            '$1***',
          )
          .replace(/([a-z][a-z0-9+.-]*:\/\/)\S*@/gi, '$1***@')
      : text

  const pieces = [
    '?',
    '&',
    '=',
    '@',
    ' ',
    '\n',
    ':',
    '/',
    '://',
    'a',
    '1',
    '+',
    'Token',
    'password',
    'authMechanismProperties',
  ]

  test('property: redactUris redacts the same text as the regular expressions', () => {
    const text = fc
      .array(fc.constantFrom(...pieces, 'mongodb://', 'u:p'), { maxLength: 14 })
      .map((parts) => parts.join(''))
    fc.assert(
      fc.property(text, (one) => {
        expect(redactUris(`x://y ${one}`)).toBe(reference(`x://y ${one}`))
      }),
      { numRuns: 3_000 },
    )
  })

  test('property: redactUris takes at most 2 microseconds for each character of a hostile text', () => {
    const length = 100_000
    const hostile = fc.array(fc.constantFrom(...pieces), { minLength: 1, maxLength: 4 })
    fc.assert(
      fc.property(hostile, (parts) => {
        const piece = parts.join('')
        const text = `mongodb://${piece.repeat(Math.ceil(length / piece.length))}`
        const began = process.cpuUsage()
        redactUris(text)
        redactUri(text)
        const { user, system } = process.cpuUsage(began)
        expect((user + system) / text.length).toBeLessThan(2)
      }),
      { numRuns: 60, examples: [[['?token']], [['://']], [['a']], [['?']], [['&']], [['a:']]] },
    )
  })
})

test.each([
  ['mongodb://u:p@a:1,b/?replicaSet=rs&appName=hunter2&tls=true', 'mongodb://***@a:1,b/?replicaSet=rs&tls=true'],
  ['mongodb://a/?appname=hunter2%40x', 'mongodb://a/'],
  ['mongodb://u:p@a/?authSource=b%40c%26d&w=majority', 'mongodb://***@a/?authSource=b%40c%26d&w=majority'],
  ['mongodb+srv://u:p@a.test/admin?proxyUsername=hunter2', 'mongodb+srv://***@a.test/admin'],
  ['mongodb://a/?tlsCAFile=/x/ca.pem&authMechanismProperties=TOKEN:x', 'mongodb://a/'],
  ['not a connection string, but hunter2', '***'],
])('%s is logged as %s', (uri, logged) => {
  expect(shownUri(uri)).toBe(logged)
})
