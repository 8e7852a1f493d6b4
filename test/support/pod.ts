import { execFile } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { promisify } from 'node:util'
import { until } from './until.ts'

const run = promisify(execFile)

const startTimeoutSeconds = 20

/** A user namespace gives an ordinary user the right to make the others (user_namespaces(7)), where the system allows it. */
const namespaces = ['--user', '--map-root-user', '--pid', '--fork', '--kill-child', '--mount-proc', '--uts']

/**
 * The command line of a process that is pid 1 in a pid namespace of its own, on a host of this name: what a container runtime makes of a
 * pod of a StatefulSet. The network is the host's.
 */
export function inPod(hostname: string, commandLine: string[]): [command: string, args: string[]] {
  return ['unshare', [...namespaces, 'sh', '-c', 'hostname "$0" && exec "$@"', hostname, ...commandLine]]
}

/** Whether this system lets the tests make namespaces. */
export async function podsAreAllowed(): Promise<boolean> {
  const [command, args] = inPod('probe', ['true'])
  return await run(command, args, { timeout: 20_000 }).then(
    () => true,
    () => false,
  )
}

/** The pid that the process in the pod has outside of it, where signals are sent from. `unshare` itself passes none on. */
export async function pidOutside(unsharePid: number): Promise<number> {
  const firstChild = async (): Promise<number> => {
    const children = readFileSync(`/proc/${unsharePid}/task/${unsharePid}/children`, 'utf8').trim()
    if (children === '') throw new Error('no child yet')
    return Number(children.split(' ')[0])
  }
  return await until('a process in the pod', firstChild, startTimeoutSeconds)
}
