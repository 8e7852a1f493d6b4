import { fromCallback, fromPromise } from 'xstate'
import { verificationMachine } from '../../machines/verification.ts'
import { failureToReport } from './supervise-work.ts'
import type { SyncSession } from './sync-session.ts'
import { watchRole } from './watch-role.ts'

/** The machine of the verification with the actors that do its work. */
export function withVerificationActors(work: () => SyncSession): typeof verificationMachine {
  /** The next change reports it again. */
  const publish = (type: 'verification.hashed' | 'verification.restarted'): void =>
    void work()
      .team.reportLeading({ type })
      .catch(() => {})
  /** A part of the latest run. */
  const step = (name: 'succeed' | 'awaitCopy' | 'verify' | 'forget') =>
    fromPromise(() => {
      const { verification } = work()
      return verification[name](verification.latest)
    })
  return verificationMachine.provide({
    actors: {
      role: fromCallback(({ sendBack }) => {
        const stopped = new AbortController()
        const current = work()
        const { coordination, team } = current
        const seen = (hashed: boolean): void => sendBack({ type: 'role.seen', hashed })
        watchRole({ coordination, team, isLeaseLost: () => current.isLeaseLost }, seen, stopped.signal)
          .then((isTaken) => sendBack({ type: isTaken ? 'role.taken' : 'role.over' }))
          .catch(async (error) => sendBack({ type: 'role.failed', failure: await failureToReport(current, error) }))
        return () => stopped.abort()
      }),
      run: fromCallback(({ sendBack }) => {
        const { verification } = work()
        const run = verification.begin({
          stopped: () => sendBack({ type: 'verification.stop' }),
          scanned: () => sendBack({ type: 'scan.completed' }),
          verdict: (what) => sendBack({ type: `verdict.${what}` }),
        })
        return () => void run.close()
      }),
      succeed: step('succeed'),
      awaitCopy: step('awaitCopy'),
      verify: step('verify'),
      forget: step('forget'),
      close: fromPromise(async ({ input }) => {
        const current = work()
        const run = current.verification.latest
        await run.close()
        const failure = run.failure ?? input.error
        return failure ? await failureToReport(current, failure) : null
      }),
    },
    actions: {
      publishHashed: () => publish('verification.hashed'),
      publishRestarted: () => publish('verification.restarted'),
    },
  })
}
