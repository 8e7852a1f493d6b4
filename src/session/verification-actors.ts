import { fromCallback, fromPromise } from 'xstate'
import { verificationMachine } from '../../machines/verification.ts'
import { failureToReport } from './supervise-work.ts'
import type { SyncSession } from './sync-session.ts'
import { watchRole } from './watch-role.ts'

/** The verification machine with the actors that do its work. */
export function withVerificationActors(current: () => SyncSession): typeof verificationMachine {
  /** Reports that the first comparison is complete or has begun again. Ignores a failure of the report. */
  const publish = (type: 'verification.initiallyVerified' | 'verification.restarted'): void =>
    void current()
      .peers.reportLeading({ type })
      .catch(() => {})
  /** Provides an actor that performs this part of the latest run. */
  const step = (name: 'awaitEarlierRun' | 'awaitCopy' | 'verify' | 'discardResults') =>
    fromPromise(() => {
      const { verification } = current()
      return verification[name](verification.latest)
    })
  return verificationMachine.provide({
    actors: {
      role: fromCallback(({ sendBack }) => {
        const stopped = new AbortController()
        const session = current()
        const { coordination, peers } = session
        const report = (initiallyVerified: boolean): void => sendBack({ type: 'role.observed', initiallyVerified })
        watchRole({ coordination, peers, isLeaseLost: () => session.isLeaseLost }, report, stopped.signal)
          .then((isTaken) => sendBack({ type: isTaken ? 'role.taken' : 'role.over' }))
          .catch(async (error) => sendBack({ type: 'role.failed', failure: await failureToReport(session, error) }))
        return () => stopped.abort()
      }),
      share: fromCallback(() => current().verification.offered.begin()),
      run: fromCallback(({ sendBack }) => {
        const { verification } = current()
        const run = verification.begin({
          stopped: () => sendBack({ type: 'verification.stop' }),
          scanned: () => sendBack({ type: 'scan.completed' }),
          verdict: (what) => sendBack({ type: `verdict.${what}` }),
        })
        return () => void run.close()
      }),
      awaitEarlierRun: step('awaitEarlierRun'),
      awaitCopy: step('awaitCopy'),
      verify: step('verify'),
      discardResults: step('discardResults'),
      close: fromPromise(async ({ input }) => {
        const session = current()
        const run = session.verification.latest
        await run.close()
        const failure = run.failure ?? input.error
        return failure ? await failureToReport(session, failure) : null
      }),
    },
    actions: {
      publishInitiallyVerified: () => publish('verification.initiallyVerified'),
      publishRestarted: () => publish('verification.restarted'),
    },
  })
}
