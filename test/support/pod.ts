import { execFile } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { promisify } from 'node:util'
import { until } from './until.ts'

const run = promisify(execFile)

const startTimeoutSeconds = 20

/** A user namespace gives an ordinary user the right to create the others (user_namespaces(7)) if the system allows it. */
const namespaces = ['--user', '--map-root-user', '--pid', '--fork', '--kill-child', '--mount-proc', '--uts']

/**
 * Returns the command line of a process that is pid 1 in its own pid namespace with this host name, as a container runtime starts a
 * pod of a StatefulSet. The process uses the host's network.
 */
export function inPod(hostname: string, commandLine: string[]): [command: string, args: string[]] {
  return ['unshare', [...namespaces, 'sh', '-c', 'hostname "$0" && exec "$@"', hostname, ...commandLine]]
}

/** Returns whether this system allows the tests to create namespaces. */
export async function podsAreAllowed(): Promise<boolean> {
  const [command, args] = inPod('probe', ['true'])
  return await run(command, args, { timeout: 20_000 }).then(
    () => true,
    () => false,
  )
}

/**
 * Returns the pid, outside the pod, of the process in the pod. Signals must go to this pid, because `unshare` does not
 * forward them.
 */
export async function pidOutside(unsharePid: number): Promise<number> {
  const firstChild = async (): Promise<number> => {
    const children = readFileSync(`/proc/${unsharePid}/task/${unsharePid}/children`, 'utf8').trim()
    if (children === '') throw new Error('unshare has no child process yet')
    return Number(children.split(' ')[0])
  }
  return await until('a process in the pod', firstChild, startTimeoutSeconds)
}
