import { closeSync, existsSync, fstatSync, mkdirSync, openSync, renameSync, rmSync, writeSync } from 'node:fs'
import { dirname } from 'node:path'

/** A reader of a pipe that is full may come back within this many waits of so many milliseconds. */
const waits = { most: 20, eachMS: 5 }
const waited = new Int32Array(new SharedArrayBuffer(4))

/** Writes whole lines to an open file, at once. Throws what the system says; what was cut short then is ended before the next line. */
export class LineWriter {
  readonly #descriptor: number
  #isTorn = false
  constructor(descriptor: number) {
    this.#descriptor = descriptor
  }

  write(line: string): void {
    const bytes = Buffer.from(this.#isTorn ? `\n${line}` : line)
    let [written, tries] = [0, 0]
    while (written < bytes.length) {
      try {
        written += writeSync(this.#descriptor, bytes, written)
      } catch (error) {
        tries += 1
        if ((error as NodeJS.ErrnoException).code === 'EAGAIN' && tries <= waits.most) {
          Atomics.wait(waited, 0, 0, waits.eachMS)
          continue
        }
        this.#isTorn ||= written > 0
        throw error
      }
    }
    this.#isTorn = false
  }
}

export interface LogFileOptions {
  path: string
  /** The file is put aside before it would grow beyond this; infinity: never. */
  bytesMax: number
  /** This file and the older ones, `path.1` the newest of them. */
  files: number
}

interface OpenFile {
  descriptor: number
  writer: LineWriter
  bytes: number
}

/** Names of hosts, namespaces and users are in it: for its owner, and a group that collects logs. */
const modeOfNew = 0o640

/** A log file that is put aside when it is full. Opened for appending, so that others may truncate it too. */
export class LogFile {
  readonly #options: LogFileOptions
  #open: OpenFile | null = null
  /** Putting aside failed: it is tried again when the file has grown to this. */
  #fullAt: number

  /** Throws when it cannot be opened. */
  constructor(options: LogFileOptions) {
    this.#options = options
    this.#fullAt = options.bytesMax
    makeFolder(dirname(options.path))
    this.#opened()
  }

  /** Throws what the system says; the next line is tried anew. */
  write(line: string): void {
    const bytes = Buffer.byteLength(line)
    if (this.#opened().bytes + bytes > this.#fullAt) this.#putAside(bytes)
    const file = this.#opened()
    file.writer.write(line)
    file.bytes += bytes
  }

  /** Puts the present file aside whatever its size, unless it is empty. A failure is tried again with a later line. */
  rotate(): void {
    this.#fullAt = 0
    try {
      this.#putAside(0)
    } catch {
      // The file cannot be opened: the next line says so.
    }
    if (this.#fullAt === 0) this.#fullAt = this.#options.bytesMax
  }

  /** Goes on in the file that has the name now: after somebody else has put the present one aside. */
  reopen(): void {
    if (this.#open) closeSync(this.#open.descriptor)
    this.#open = null
    this.#fullAt = this.#options.bytesMax
  }

  #opened(): OpenFile {
    if (this.#open) return this.#open
    const descriptor = openSync(this.#options.path, 'a', modeOfNew)
    this.#open = { descriptor, writer: new LineWriter(descriptor), bytes: fstatSync(descriptor).size }
    return this.#open
  }

  #putAside(coming: number): void {
    const file = this.#opened()
    // Somebody may have truncated it.
    file.bytes = fstatSync(file.descriptor).size
    if (file.bytes === 0 || file.bytes + coming <= this.#fullAt) return
    const { path, files, bytesMax } = this.#options
    const name = (age: number): string => (age === 0 ? path : `${path}.${age}`)
    try {
      rmSync(name(files - 1), { force: true })
      for (let age = files - 2; age >= 0; age -= 1) moveIfThere(name(age), name(age + 1))
      this.reopen()
    } catch {
      // A log that grows is better than none.
      this.#fullAt = file.bytes + bytesMax
    }
  }
}

/** Step by step: with `recursive` Node asks for ever where the system takes no folder, as in /proc. */
function makeFolder(folder: string): void {
  if (existsSync(folder)) return
  makeFolder(dirname(folder))
  try {
    mkdirSync(folder)
  } catch (error) {
    // Another instance may have been quicker.
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
  }
}

function moveIfThere(from: string, to: string): void {
  try {
    renameSync(from, to)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error
  }
}
