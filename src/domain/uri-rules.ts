/**
 * What a cluster's connection string may say, and how it is shown without its secrets. The options are refused here
 * rather than overridden in silence: an operator who asked for another concern would otherwise believe he got it.
 */

/** mongodb:// or mongodb+srv://, user information up to the first `@`, hosts, rest: as the driver splits it. */
export const uriParts = /^mongodb(?:\+srv)?:\/\/(?:(?<user>[^:@]*)(?::[^@]*)?@)?[^/?@]+(?<rest>(?:[/?][\s\S]*)?)$/

/** Problems of one connection string, in words that never contain any of it. Empty when it may be used. */
export function checkUri(name: string, uri: string): string[] {
  const parts = uriParts.exec(uri)
  if (parts === null) {
    return [
      `${name}: not a MongoDB connection string; give mongodb://host:port/... or mongodb+srv://host/..., with reserved characters in user name and password percent-encoded`,
    ]
  }
  const { user = '', rest = '' } = parts.groups ?? {}
  const options = uriOptions(rest)
  const problems = checkUser(name, decode(user), options)
  for (const [option, value] of options) {
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
        `${name}: Invalid URI option, socketTimeoutMS is not supported: it would cut long reads; remove socketTimeoutMS`,
      )
    }
  }
  return [...new Set(problems)]
}

/**
 * SCRAM escapes `=` and `,` in user names (RFC 5802, section 5.1). The driver (7.9.0 and earlier, `cleanUsername`) does so with the
 * first of each only, and for SCRAM-SHA-1 hashes the escaped name: the server then refuses the right password. Tried with 6.0.27.
 */
function checkUser(name: string, user: string, options: readonly [option: string, value: string][]): string[] {
  const [, mechanism = 'DEFAULT'] = options.find(([option]) => option === 'authmechanism') ?? []
  if (/^SCRAM-SHA-1$/i.test(mechanism) && /[=,]/.test(user)) {
    return [
      `${name}: a user name with a comma or an equals sign cannot log in with SCRAM-SHA-1 through MongoDB's driver for Node.js; give another user, or let it log in with SCRAM-SHA-256`,
    ]
  }
  if (!/^(?:DEFAULT|SCRAM-SHA-256)$/i.test(mechanism) || isSaidRightly(user)) return []
  return [
    `${name}: a user name with several commas, or several equals signs, cannot log in with SCRAM through MongoDB's driver for Node.js; give another user`,
  ]
}

/** What the driver says is understood as what was meant. */
function isSaidRightly(user: string): boolean {
  const said = user.replace('=', '=3D').replace(',', '=2C')
  return !said.includes(',') && said.replaceAll('=2C', ',').replaceAll('=3D', '=') === user
}

/** Options by which the server's certificate is not checked, or not for its host (https://www.mongodb.com/docs/manual/reference/connection-string-options/). */
const unverifiedOptions = ['tlsInsecure', 'tlsAllowInvalidCertificates', 'tlsAllowInvalidHostnames']

/** Those of a connection string, as MongoDB spells them. */
export function unverifiedOptionsOf(uri: string): string[] {
  const given = uriOptions(uriParts.exec(uri)?.groups?.['rest'] ?? '')
  const on = new Set(given.filter(([, value]) => value.toLowerCase() === 'true').map(([option]) => option))
  return unverifiedOptions.filter((option) => on.has(option.toLowerCase()))
}

/** The file that holds the client's certificate and private key, as the driver reads it; null without one. */
export function certificateKeyFileOf(uri: string): string | null {
  const given = uriOptions(uriParts.exec(uri)?.groups?.['rest'] ?? '')
  return given.find(([option]) => option === 'tlscertificatekeyfile')?.[1] || null
}

function uriOptions(rest: string): [option: string, value: string][] {
  const queryStart = rest.indexOf('?')
  if (queryStart === -1) return []
  return rest
    .slice(queryStart + 1)
    .split('&')
    .filter((pair) => pair !== '')
    .map((pair) => {
      const equals = pair.indexOf('=')
      const option = equals === -1 ? pair : pair.slice(0, equals)
      return [decode(option).toLowerCase(), equals === -1 ? '' : decode(pair.slice(equals + 1))]
    })
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}

/** What the name of an option with a secret has in it, in lower case. */
const secretWords = ['password', 'secret', 'token', 'proxyusername']

/** The connection string without user name, password and other secrets, for logs. */
export function redactUri(uri: string): string {
  // Options first: an `@` in one of them must not be taken for the end of the user information. Then up to the last
  // `@`, because a password that was not percent-encoded may contain one.
  return uri.replace(/\S+/g, withoutSecretOptions).replace(/^(mongodb(?:\+srv)?:\/\/)[\s\S]*@/i, '$1***@')
}

/**
 * Any text, for instance an error's message, with every connection string (or other address with a user) in it redacted. Takes
 * time that grows with the length of the text and no faster: anybody may cause a message, by the name of a collection for
 * instance, and regular expressions that look for the same from every place took cubic time.
 */
export function redactUris(text: string): string {
  if (!text.includes('://')) return text
  return text.replace(/\S+/g, (word) => withoutUser(withoutSecretOptions(word)))
}

/** Of a text without spaces: what follows `=` of each option in it that holds a secret, up to `&`. */
function withoutSecretOptions(word: string): string {
  let shown = ''
  let copied = 0
  /** Where the present name began, and whether `&` stands before it: else it begins behind its first `?`. */
  let start = 0
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

/** Of a text without spaces: the user information of the first address in it, up to the last `@`. */
function withoutUser(word: string): string {
  const end = word.lastIndexOf('@')
  for (let colon = word.indexOf('://'); colon !== -1 && colon + 3 <= end; colon = word.indexOf('://', colon + 3)) {
    if (hasScheme(word, colon)) return `${word.slice(0, colon + 3)}***${word.slice(end)}`
  }
  return word
}

/** Whether a letter stands before `colon`, with nothing between but what a scheme may hold. */
function hasScheme(word: string, colon: number): boolean {
  for (let at = colon - 1; at >= 0; at--) {
    const character = word[at] as string
    if (/[a-z]/i.test(character)) return true
    if (!/[0-9+.-]/.test(character)) return false
  }
  return false
}
