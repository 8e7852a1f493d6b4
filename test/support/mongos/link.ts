import { connect, type Socket } from 'node:net'
import { Binary, type Document } from 'mongodb'
import type { ClusterClock } from './cluster-clock.ts'
import { decode, encode } from './fields.ts'
import { ScramClient } from './scram.ts'
import { type DocumentSequence, encodeMessage, messageReader, parseMessage } from './wire.ts'

interface Waiting {
  resolve(body: Buffer): void
  reject(error: Error): void
}

/**
 * Settings of all links: the clock that collects cluster times, and the key file's contents, which are null without
 * access control.
 */
export interface LinkSetting {
  clock: ClusterClock
  key: string | null
}

/** One connection to a mongod. A server answers the commands of a connection one after the other. */
class Link {
  isClosed = false
  #socket: Socket
  #setting: LinkSetting
  #waiting: Waiting[] = []
  #login: Promise<void> | null = null

  constructor(host: string, setting: LinkSetting) {
    this.#setting = setting
    const colon = host.lastIndexOf(':')
    this.#socket = connect(Number(host.slice(colon + 1)), host.slice(0, colon)).setNoDelay(true)
    this.#socket.on(
      'data',
      messageReader((message) => this.#waiting.shift()?.resolve(parseMessage(message).body)),
    )
    this.#socket.on('error', (error) => this.#fail(error))
    this.#socket.on('close', () => this.#fail(new Error(`connection to ${host} closed`)))
  }

  async send(body: Buffer, sequences?: DocumentSequence[]): Promise<Buffer> {
    if (this.#setting.key !== null) {
      this.#login ??= this.#logIn(this.#setting.key)
      await this.#login
    }
    const reply = await this.#exchange(body, sequences)
    this.#setting.clock.observe(reply)
    return reply
  }

  close(): void {
    this.#socket.destroy()
  }

  #exchange(body: Buffer, sequences?: DocumentSequence[]): Promise<Buffer> {
    return new Promise((resolve, reject) => {
      if (this.isClosed) return reject(new Error('connection closed'))
      this.#waiting.push({ resolve, reject })
      this.#socket.write(encodeMessage(body, sequences))
    })
  }

  #fail(error: Error): void {
    this.isClosed = true
    for (const { reject } of this.#waiting.splice(0)) reject(error)
  }

  /** Logs in as the members of a cluster do: as user __system with the contents of the key file as password. */
  async #logIn(key: string): Promise<void> {
    const scram = new ScramClient('__system', key)
    const exchangeStep = async (command: Document, text: string): Promise<{ conversationId: number; text: string }> => {
      const payload = new Binary(Buffer.from(text))
      const reply = decode(await this.#exchange(encode({ ...command, payload, $db: 'local' })))
      if (!reply['ok']) throw new Error(`cannot log in to a server: ${reply['errmsg']}`)
      return { conversationId: reply['conversationId'], text: Buffer.from(reply['payload'].buffer).toString() }
    }
    const start = { saslStart: 1, mechanism: 'SCRAM-SHA-256', options: { skipEmptyExchange: true } }
    const { conversationId, text } = await exchangeStep(start, scram.first())
    await exchangeStep({ saslContinue: 1, conversationId }, scram.final(text))
  }
}

/** Holds at most one connection to each server, which is opened when needed. */
export class Links {
  #setting: LinkSetting
  #links = new Map<string, Link>()

  constructor(setting: LinkSetting) {
    this.#setting = setting
  }

  send(host: string, body: Buffer, sequences?: DocumentSequence[]): Promise<Buffer> {
    let link = this.#links.get(host)
    if (!link || link.isClosed) {
      link = new Link(host, this.#setting)
      this.#links.set(host, link)
    }
    return link.send(body, sequences)
  }

  /** Sends a command of the stand-in itself. Also resolves if the reply is an error. */
  async ask(host: string, database: string, command: Document): Promise<Document> {
    return decode(await this.send(host, encode({ ...command, $db: database })))
  }

  close(): void {
    for (const link of this.#links.values()) link.close()
  }
}
