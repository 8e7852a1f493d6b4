import { hostname } from 'node:os'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Document } from 'mongodb'
import { StoppedError } from '../domain/errors.ts'
import { metadataDatabase } from '../domain/namespace.ts'
import type { Cluster } from './cluster.ts'
import { code, TransientReplyError } from './errors.ts'
import { type RetryContext, retry } from './retry.ts'

/** A lease not renewed for this long may be taken over. By the destination's clock, so skewed hosts do not matter. */
const leaseMS = 10_000
const renewMS = 2_500
/** Writes stop this much before the lease ends, so that one just sent has ended when a successor begins. */
const marginMS = 2_000

export interface LeaseOwner {
  /** mongosyncID. */
  id: string
  /** One per process. */
  incarnation: string
}

/**
 * The right to write to the destination: one holder per lease, each with an epoch of its own that every stored position
 * carries. A process started again on the same host proves by its predecessor's dead pid that it may take over at
 * once; anybody else waits until the lease has expired.
 */
export class Lease {
  readonly #cluster: Cluster
  readonly #name: string
  readonly #owner: LeaseOwner
  readonly #context: RetryContext
  #epoch = 0
  #holder: string | null = null
  #validUntil = 0
  #timer: NodeJS.Timeout | null = null
  #onLost: (() => void) | null = null

  constructor(destination: Cluster, name: string, owner: LeaseOwner, context: RetryContext) {
    this.#cluster = destination
    this.#name = name
    this.#owner = owner
    this.#context = context
  }

  get epoch(): number {
    return this.#epoch
  }

  /** mongosyncID of the holder as last seen; null before anybody is known. */
  get holder(): string | null {
    return this.#holder
  }

  /** Throws while this process may not write: by a monotonic clock, which a stopped and continued process cannot fool. */
  fence(): void {
    if (performance.now() > this.#validUntil) {
      throw new TransientReplyError('the lease on the destination could not be renewed in time')
    }
  }

  /** Called when the lease is found in other hands. */
  set onLost(listener: (() => void) | null) {
    this.#onLost = listener
  }

  /** Resolves when this process holds the lease. */
  async acquire(): Promise<void> {
    for (;;) {
      if (this.#context.signal.aborted) throw new StoppedError()
      const taken = await retry('taking the lease', this.#context, () => this.#tryAcquire())
      if (taken) break
      await sleep(200)
    }
    this.#timer ??= setInterval(() => this.#renew(), renewMS)
  }

  async release(): Promise<void> {
    if (this.#timer) clearInterval(this.#timer)
    this.#timer = null
    if (this.#epoch === 0) return
    this.#validUntil = 0
    await this.#update({ _id: this.#name, epoch: this.#epoch }, { $set: { expiresAt: new Date(0) } }).catch(() => {})
  }

  async #tryAcquire(): Promise<boolean> {
    const found = await this.#cluster.read(metadataDatabase, {
      find: 'leases',
      filter: { _id: this.#name },
      readConcern: { level: 'majority' },
    })
    const held = found['cursor'].firstBatch[0] as Document | undefined
    this.#holder = (held?.['owner'] as string | undefined) ?? null
    const epoch = ((held?.['epoch'] as number | undefined) ?? 0) + 1
    const fields = {
      owner: this.#owner.id,
      incarnation: this.#owner.incarnation,
      host: hostname(),
      pid: process.pid,
      epoch,
      expiresAt: leaseEnd,
      schemaVersion: 1,
    }
    if (!held) {
      if (!(await this.#update({ _id: this.#name, epoch: { $exists: false } }, [{ $set: fields }], true))) return false
      this.#epoch = epoch
    } else if (held['incarnation'] !== this.#owner.incarnation) {
      const free = predecessorIsDead(held, this.#owner.id) ? {} : { $expr: { $lt: ['$expiresAt', '$$NOW'] } }
      const successor = { ...fields, predecessor: held['incarnation'] }
      if (!(await this.#update({ _id: this.#name, epoch: held['epoch'], ...free }, [{ $set: successor }]))) return false
      this.#epoch = epoch
    } else {
      // Taken by an attempt whose answer was lost.
      this.#epoch = held['epoch'] as number
    }
    // Writes of a dead predecessor that the destination is still working on end before ours begin.
    const predecessor = held?.['incarnation'] === this.#owner.incarnation ? held['predecessor'] : held?.['incarnation']
    if (predecessor) {
      await this.#cluster.idle({
        appName: { $regex: `${predecessor}$` },
        'command.hello': { $exists: false },
        op: { $in: ['insert', 'update', 'remove', 'command'] },
      })
    }
    const renewedAt = performance.now()
    if (!(await this.#update({ _id: this.#name, epoch: this.#epoch }, [{ $set: { expiresAt: leaseEnd } }])))
      return false
    this.#holder = this.#owner.id
    this.#validUntil = renewedAt + leaseMS - marginMS
    return true
  }

  async #renew(): Promise<void> {
    const sentAt = performance.now()
    try {
      const renewed = await this.#update({ _id: this.#name, epoch: this.#epoch }, [{ $set: { expiresAt: leaseEnd } }])
      if (renewed) this.#validUntil = sentAt + leaseMS - marginMS
      else this.#lost()
    } catch {
      // Tried again at the next tick; the fence stops writes when it takes too long.
    }
  }

  #lost(): void {
    if (this.#timer) clearInterval(this.#timer)
    this.#timer = null
    this.#validUntil = 0
    this.#holder = null
    this.#onLost?.()
  }

  /** True when the filter matched (or, with upsert, nothing stood there). */
  async #update(filter: Document, change: Document | Document[], upsert = false): Promise<boolean> {
    const reply = await this.#cluster.write(
      metadataDatabase,
      { update: 'leases', updates: [{ q: filter, u: change, upsert }] },
      { unfenced: true, timeoutMS: 5_000 },
    )
    const errors = reply['writeErrors'] as { code: number; errmsg: string }[] | undefined
    if (errors?.[0]) {
      if (errors[0].code === code.duplicateKey) return false
      throw new Error(`lease write failed: ${errors[0].errmsg}`)
    }
    return (reply['n'] as number) > 0
  }
}

const leaseEnd = { $add: ['$$NOW', leaseMS] }

function predecessorIsDead(held: Document, id: string): boolean {
  if (held['owner'] !== id || held['host'] !== hostname()) return false
  const pid = held['pid'] as number
  if (pid === process.pid) return true
  try {
    process.kill(pid, 0)
    return false
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'ESRCH'
  }
}
