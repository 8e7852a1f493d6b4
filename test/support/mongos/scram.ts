import { createHash, createHmac, pbkdf2Sync, randomBytes } from 'node:crypto'

/**
 * Both sides of SCRAM-SHA-256 (RFC 7677): the mongos stand-in logs in to the servers with the key file's contents, and
 * users log in to the stand-in.
 */

export interface Credentials {
  iterationCount: number
  salt: string
  storedKey: string
  serverKey: string
}

const hmac = (key: Buffer, text: string): Buffer => createHmac('sha256', key).update(text).digest()
const sha256 = (bytes: Buffer): Buffer => createHash('sha256').update(bytes).digest()
const xor = (one: Buffer, other: Buffer): Buffer => Buffer.from(one.map((byte, index) => byte ^ (other[index] ?? 0)))

/** Parses attributes such as `n=name,r=nonce` into an object with their letters as keys. */
function attributes(text: string): Record<string, string> {
  return Object.fromEntries(text.split(',').map((attribute) => [attribute.slice(0, 1), attribute.slice(2)]))
}

export class ScramClient {
  #password: string
  #firstBare: string

  constructor(user: string, password: string) {
    this.#password = password
    this.#firstBare = `n=${user},r=${randomBytes(18).toString('base64')}`
  }

  first(): string {
    return `n,,${this.#firstBare}`
  }

  final(serverFirst: string): string {
    const { r = '', s = '', i = '' } = attributes(serverFirst)
    const salted = pbkdf2Sync(this.#password, Buffer.from(s, 'base64'), Number(i), 32, 'sha256')
    const clientKey = hmac(salted, 'Client Key')
    const withoutProof = `c=biws,r=${r}`
    const signature = hmac(sha256(clientKey), `${this.#firstBare},${serverFirst},${withoutProof}`)
    return `${withoutProof},p=${xor(clientKey, signature).toString('base64')}`
  }
}

/** Returns the user name in a client's first message. */
export function userIn(clientFirst: string): string {
  const { n = '' } = attributes(clientFirst.slice('n,,'.length))
  return n.replaceAll('=2C', ',').replaceAll('=3D', '=')
}

export class ScramServer {
  readonly first: string
  #credentials: Credentials
  #clientFirstBare: string

  constructor(credentials: Credentials, clientFirst: string) {
    this.#credentials = credentials
    this.#clientFirstBare = clientFirst.slice('n,,'.length)
    const nonce = attributes(this.#clientFirstBare)['r'] + randomBytes(18).toString('base64')
    this.first = `r=${nonce},s=${credentials.salt},i=${credentials.iterationCount}`
  }

  /** Returns the server's last message, or null for a wrong password. */
  final(clientFinal: string): string | null {
    const proofStart = clientFinal.lastIndexOf(',p=')
    const proof = Buffer.from(clientFinal.slice(proofStart + 3), 'base64')
    const exchange = `${this.#clientFirstBare},${this.first},${clientFinal.slice(0, proofStart)}`
    const storedKey = Buffer.from(this.#credentials.storedKey, 'base64')
    const clientKey = xor(proof, hmac(storedKey, exchange))
    if (!sha256(clientKey).equals(storedKey)) return null
    return `v=${hmac(Buffer.from(this.#credentials.serverKey, 'base64'), exchange).toString('base64')}`
  }
}
