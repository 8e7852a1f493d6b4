import { ConnectionString } from 'mongodb-connection-string-url'

/**
 * Checks connection strings of clusters, and removes secrets from them. An unsupported option is rejected. If tandem
 * overrode it silently, an operator who sets another read or write concern would believe that it applies.
 */

/** Parses a connection string with the driver's own parser. Returns null if that parser rejects it. */
function parseUri(uri: string): ConnectionString | null {
  try {
    return new ConnectionString(uri)
  } catch {
    return null // the error may contain the user name
  }
}

/**
 * Returns the problems of a connection string, or an empty array if tandem accepts it. The texts contain no part of the
 * connection string, except the name of an unknown compressor.
 */
export function checkUri(name: string, uri: string): string[] {
  const parsed = parseUri(uri)
  if (parsed === null) {
    return [
      `${name}: not a MongoDB connection string; give mongodb://host:port/... or mongodb+srv://host/..., with reserved characters in user name and password percent-encoded`,
    ]
  }
  const { username, searchParams } = parsed
  const problems = checkUser(name, decodeURIComponent(username), searchParams.get('authMechanism') ?? 'DEFAULT')
  for (const [spelling, value] of searchParams) {
    const option = spelling.toLowerCase()
    // The error texts are mongosync's; option names in a connection string are case-insensitive.
    if ((option === 'readconcernlevel' || option === 'readconcern') && value !== 'majority') {
      problems.push(
        `${name}: Invalid URI option, read concern must be majority; remove readConcernLevel or set it to majority`,
      )
    }
    if ((option === 'w' || option === 'writeconcern') && value !== 'majority') {
      problems.push(`${name}: Invalid URI option, write concern must be majority; remove w or set it to majority`)
    }
    if (option === 'readpreference' && value !== 'primary') {
      problems.push(
        `${name}: Invalid URI option, read preference must be primary; remove readPreference or set it to primary`,
      )
    }
    if (option === 'sockettimeoutms') {
      problems.push(
        `${name}: Invalid URI option, socketTimeoutMS is not supported: it would interrupt long reads; remove socketTimeoutMS`,
      )
    }
    // The driver passes any number on to zlib, which refuses it at the first command.
    if (option === 'zlibcompressionlevel' && !/^(?:-1|[0-9])$/.test(value)) {
      problems.push(`${name}: Invalid URI option, zlibCompressionLevel must be a whole number from -1 to 9`)
    }
  }
  for (const compressor of compressorsOf(uri)) {
    if (compressorNames.has(compressor)) continue
    const shown = /^[\w-]{1,20}$/.test(compressor) ? compressor : 'a name in it'
    problems.push(
      `${name}: Invalid URI option, compressors: ${shown} is not a compressor; give snappy, zlib or zstd, or several with commas in between`,
    )
  }
  return [...new Set(problems)]
}

/**
 * SCRAM escapes `=` and `,` in user names (RFC 5802, section 5.1). The driver (7.9.0 and earlier, `cleanUsername`)
 * escapes only the first of each, and for SCRAM-SHA-1 it hashes the escaped name, so the server rejects the right
 * password. Tested with MongoDB 6.0.27.
 */
function checkUser(name: string, user: string, mechanism: string): string[] {
  if (/^SCRAM-SHA-1$/i.test(mechanism) && /[=,]/.test(user)) {
    return [
      `${name}: a user name with a comma or an equals sign cannot log in with SCRAM-SHA-1 through MongoDB's driver for Node.js; give another user, or let it log in with SCRAM-SHA-256`,
    ]
  }
  if (!/^(?:DEFAULT|SCRAM-SHA-256)$/i.test(mechanism) || isEscapedCorrectly(user)) return []
  return [
    `${name}: a user name with several commas, or with =2C or =3D after another equals sign, cannot log in with SCRAM through MongoDB's driver for Node.js; give another user`,
  ]
}

/** True if the server decodes the driver's escaped form of the user name to the original name. */
function isEscapedCorrectly(user: string): boolean {
  const escaped = user.replace('=', '=3D').replace(',', '=2C')
  return !escaped.includes(',') && escaped.replaceAll('=2C', ',').replaceAll('=3D', '=') === user
}

/**
 * Options that disable the check of the server's certificate or of its host name.
 * https://www.mongodb.com/docs/manual/reference/connection-string-options/
 */
const unverifiedOptions = ['tlsInsecure', 'tlsAllowInvalidCertificates', 'tlsAllowInvalidHostnames']

/** The options of `unverifiedOptions` that a connection string sets to true, in MongoDB's spelling. */
export function unverifiedOptionsOf(uri: string): string[] {
  const given = parseUri(uri)?.searchParams
  return unverifiedOptions.filter((option) => given?.get(option)?.toLowerCase() === 'true')
}

/** Path of the file from which the driver reads the client's certificate and private key; null if there is none. */
export function certificateKeyFileOf(uri: string): string | null {
  return parseUri(uri)?.searchParams.get('tlsCertificateKeyFile') || null
}

/** The compressors that the driver knows; `none` is its default. */
const compressorNames = new Set(['snappy', 'zlib', 'zstd', 'none'])

/** The compressors that a connection string names, in its order of preference. */
export function compressorsOf(uri: string): string[] {
  const given = [...(parseUri(uri)?.searchParams ?? [])].filter(([option]) => option.toLowerCase() === 'compressors')
  return given.flatMap(([, value]) => value.split(','))
}

/** Lower-case parts of the names of options that hold a secret. */
const secretWords = ['password', 'secret', 'token', 'proxyusername']

/**
 * Redacts a text that consists of one connection string or one URL of a Redis server. Unlike `redactUris`, it also
 * redacts secrets that contain spaces, which the clients accept.
 */
export function redactUri(uri: string): string {
  // Redact the options first, because an `@` in one of them must not count as the end of the user information. The user
  // information then extends to the last `@`, because a password without percent-encoding may contain one.
  return redactUris(withoutSecretOptions(uri).replace(/^([a-z][a-z0-9+.-]*:\/\/)[\s\S]*@/i, '$1***@'))
}

/**
 * Options of a connection string whose values cannot be secrets: names of hosts, replica sets, databases and
 * mechanisms, switches, and numbers. Any other option may contain free text, such as `appName`, or the path of a file.
 */
const plainOptions = new Set(
  [
    ...['replicaSet', 'directConnection', 'loadBalanced', 'srvMaxHosts', 'srvServiceName', 'localThresholdMS'],
    ...['tls', 'ssl', ...unverifiedOptions],
    ...['authSource', 'authMechanism', 'compressors', 'zlibCompressionLevel'],
    ...['readPreference', 'readConcernLevel', 'w', 'journal', 'retryReads', 'retryWrites', 'maxStalenessSeconds'],
    ...['maxPoolSize', 'minPoolSize', 'maxConnecting', 'maxIdleTimeMS', 'waitQueueTimeoutMS', 'timeoutMS'],
    ...['connectTimeoutMS', 'serverSelectionTimeoutMS', 'heartbeatFrequencyMS', 'proxyHost', 'proxyPort'],
  ].map((option) => option.toLowerCase()),
)

/**
 * Returns a connection string for the log, which people send to others: the hosts, the database, and the options that
 * cannot be secrets. It is built from what the driver has parsed, so no other part of the text can appear in it.
 */
export function shownUri(uri: string): string {
  const parsed = parseUri(uri)
  if (parsed === null) return '***'
  const { protocol, username, hosts, pathname, searchParams } = parsed
  const options = [...searchParams]
    .filter(([option]) => plainOptions.has(option.toLowerCase()))
    .map(([option, value]) => `${option}=${encodeURIComponent(value).replaceAll('%2F', '/')}`)
  const query = options.length > 0 ? `?${options.join('&')}` : ''
  return `${protocol}//${username ? '***@' : ''}${hosts.join(',')}${pathname}${query}`
}

/**
 * Redacts every connection string (and any other URL with a user) in a text, for instance in an error message. It takes
 * linear time. A regular expression that searches from every position takes cubic time, and anyone can cause a message
 * with a long text, for instance by the name of a collection.
 */
export function redactUris(text: string): string {
  if (!text.includes('://')) return text
  return text.replace(/\S+/g, (word) => withoutUser(withoutSecretOptions(word)))
}

/** Replaces the value of each option that may be a secret. A value ends at the next `&` or at the end of the text. */
function withoutSecretOptions(word: string): string {
  let shown = ''
  let copied = 0
  /** Start of the text that contains the current option's name. */
  let start = 0
  /** True if `&` precedes `start`. The whole text is then the name; otherwise the name begins after the first `?`. */
  let isOption = false
  for (let at = 0; at < word.length; at++) {
    const character = word[at]
    if (character !== '=' && character !== '&') continue
    const name = character === '=' ? word.slice(start, at) : ''
    start = at + 1
    if (!holdsSecret(name, isOption)) {
      isOption = character === '&'
      continue
    }
    const end = word.indexOf('&', at)
    shown += `${word.slice(copied, at + 1)}***`
    copied = end === -1 ? word.length : end
    at = copied
    start = copied + 1
    isOption = true
  }
  return shown + word.slice(copied)
}

function holdsSecret(text: string, isOption: boolean): boolean {
  const first = isOption ? 0 : text.indexOf('?') + 1
  if (first === 0 && !isOption) return false
  const name = text.slice(first).toLowerCase()
  const last = name.slice(name.lastIndexOf('?') + 1)
  return last === 'authmechanismproperties' || secretWords.some((word) => name.includes(word))
}

/** Replaces the user information of the first URL in a text without spaces, up to the last `@`. */
function withoutUser(word: string): string {
  const end = word.lastIndexOf('@')
  for (let colon = word.indexOf('://'); colon !== -1 && colon + 3 <= end; colon = word.indexOf('://', colon + 3)) {
    if (hasScheme(word, colon)) return `${word.slice(0, colon + 3)}***${word.slice(end)}`
  }
  return word
}

/** True if a letter precedes `colon`, with only characters of a URI scheme between them. */
function hasScheme(word: string, colon: number): boolean {
  for (let at = colon - 1; at >= 0; at--) {
    const character = word[at] as string
    if (/[a-z]/i.test(character)) return true
    if (!/[0-9+.-]/.test(character)) return false
  }
  return false
}
