import { closeSync, existsSync, mkdirSync, openSync, readFileSync } from 'node:fs'
import { connect } from 'node:net'
import path from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { type GuardedProcess, spawnGuarded } from './guarded-process.ts'
import { type MongodVersion, repositoryRoot, resolveMongod } from './mongo-binaries.ts'
import type { SteppedClock } from './stepped-clock.ts'

/** A start takes about a second; recovery after SIGKILL on a busy machine takes longest. */
const startTimeoutMs = 180_000

export interface MongodOptions {
  port: number
  /** Folder of `data/`, `mongod.log`, and `mongod.out` for the output of a server that cannot open its log. */
  folder: string
  version?: MongodVersion | undefined
  args: string[]
  /** The server's wall clock; by default the host's. */
  clock?: SteppedClock | undefined
}

/** Starts a temporary mongod on 127.0.0.1 and resolves when it accepts connections. */
export async function startMongod({ port, folder, version, args, clock }: MongodOptions): Promise<GuardedProcess> {
  const { mongod, env: libraries } = await resolveMongod({ version })
  const env = { ...libraries, ...clock?.env }
  const data = path.join(folder, 'data')
  const [log = '', output = ''] = logsIn(folder)
  mkdirSync(data, { recursive: true })
  const commandLine = [
    ...[mongod, '--port', String(port), '--bind_ip', '127.0.0.1', '--nounixsocket'],
    ...['--dbpath', data, '--logpath', log, '--logappend'],
    ...['--setParameter', 'diagnosticDataCollectionEnabled=false'],
    ...['--setParameter', 'enableTestCommands=1'], // Fail points need this parameter.
    ...args,
  ]
  return await startServer({ name: 'mongod', port, commandLine, env, log, output })
}

const logsIn = (folder: string): string[] => ['mongod.log', 'mongod.out'].map((name) => path.join(folder, name))

/** Returns the last errors in the logs of a mongod. */
export const lastErrors = (folder: string): string => errorsIn(logsIn(folder))

export interface ServerOptions {
  name: string
  port: number
  commandLine: string[]
  env: Record<string, string>
  log: string
  /** File for the server's stdout and stderr. */
  output: string
}

/** Starts a server and resolves when it accepts connections. */
export async function startServer({
  name,
  port,
  commandLine,
  env,
  log,
  output,
}: ServerOptions): Promise<GuardedProcess> {
  const [command = '', ...args] = commandLine
  const file = openSync(output, 'a')
  const server = spawnGuarded(command, args, { env, output: file, cwd: repositoryRoot })
  closeSync(file)
  const deadline = Date.now() + startTimeoutMs
  while (!(await acceptsConnections(port))) {
    if (!server.isRunning() || Date.now() > deadline) {
      const what = server.isRunning() ? `did not accept connections in ${startTimeoutMs / 1000} s` : 'exited'
      await server.kill()
      throw new Error(`${name} on port ${port} ${what}:\n${errorsIn([log, output])}`)
    }
    await delay(10)
  }
  return server
}

function acceptsConnections(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1')
    socket.once('error', () => resolve(false))
    socket.once('connect', () => {
      socket.destroy()
      resolve(true)
    })
  })
}

/** Returns the last log lines of severity error and fatal, or the end of the log if there are none. */
function errorsIn(files: string[]): string {
  const lines = files
    .filter((file) => existsSync(file))
    .flatMap((file) => readFileSync(file, 'utf8').split('\n'))
    .filter((line) => line !== '')
  const errors = lines.filter((line) => /"s":"[EF]"/.test(line))
  return (errors.length > 0 ? errors : lines).slice(-5).join('\n')
}
