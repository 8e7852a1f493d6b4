import { beforeEach } from 'vitest'
import { keepHosts, stopHosts } from './tandem-hosts.ts'

/** Runs before each test file whose instances may use the processes of earlier ones. The long tests start a new process for each instance. */

keepHosts()

beforeEach(({ onTestFailed }) => onTestFailed(stopHosts))
