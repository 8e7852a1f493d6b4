import { Hono } from 'hono'
import * as v from 'valibot'
import { refusalStatus } from '../domain/errors.ts'
import type { Instance } from '../domain/instance.ts'
import { type GivenCommand, type PeerAnswers, type PeerCommand, peerCommands } from '../domain/peer-command.ts'
import { failureBody, wrongMethod } from './answers.ts'
import type { RefusalVariables } from './audit-commands.ts'
import { commitBodySchema, parseCommit } from './commit-schema.ts'
import { describeCommand } from './describe-endpoint.ts'
import { filterBodySchema, parseFilter } from './filter-schema.ts'
import { readEmptyBody, readJsonObject } from './read-body.ts'
import { emptyBodySchema, failureSchema, successSchema } from './schemas.ts'
import { objectOf } from './strict-schema.ts'

/** `POST /api/v1/all/<command>`: one instance sends the command to all, for clients that reach only one of them. */

const answers = v.pipe(
  v.record(v.string(), v.union([successSchema, failureSchema])),
  v.description('The answer of each live instance, by mongosyncID.'),
)
const allAcceptedSchema = objectOf({ success: v.literal(true), answers })

const summaries: Record<PeerCommand, string> = {
  pause: 'Sends pause to every live instance.',
  resume: 'Sends resume to every live instance.',
  commit: 'Sends commit to every live instance.',
  abort: 'Sends abort to every live instance.',
  reverse: 'Sends reverse to every live instance.',
  filter: 'Sends filter to every live instance. The filter is stored only once, because it applies to all instances.',
}

const bodies = {
  commit: { schema: commitBodySchema, required: false },
  filter: { schema: filterBodySchema, required: true },
}

export function sendToAllRoutes(instance: Instance): Hono<{ Variables: RefusalVariables }> {
  const routes = new Hono<{ Variables: RefusalVariables }>()
  for (const command of peerCommands) {
    const path = `/api/v1/all/${command}`
    const description = describeCommand(
      `${command}All`,
      summaries[command],
      command === 'commit' || command === 'filter' ? bodies[command] : { schema: emptyBodySchema, required: false },
      allAcceptedSchema,
    )
    routes.post(path, description, async (context) => {
      const { status, body } = renderAnswers(await instance.sendToAll(await readGiven(command, context.req.raw)))
      if ('error' in body) context.set('refusedWith', body.error)
      return context.json(body, status)
    })
    routes.all(path, (context) => wrongMethod(context, 'POST'))
  }
  return routes
}

async function readGiven(command: PeerCommand, request: Request): Promise<GivenCommand> {
  if (command === 'commit') return { command, request: parseCommit(await readJsonObject(request)) }
  if (command === 'filter') return { command, filter: parseFilter(await readJsonObject(request)) }
  await readEmptyBody(request)
  return { command }
}

/** The error of the first refusal is the error of the whole request; `answers` contains each answer. */
function renderAnswers(given: PeerAnswers) {
  const answers = Object.fromEntries(
    [...given].map(([id, answer]) => [
      id,
      answer.success ? answer : failureBody(answer.error, answer.errorDescription),
    ]),
  )
  const [refused] = [...given].flatMap(([id, answer]) => (answer.success ? [] : [{ id, ...answer }]))
  if (!refused) return { status: 200 as const, body: { success: true, answers } }
  const { id, error, errorDescription } = refused
  const body = { ...failureBody(error, `${id}: ${errorDescription}`), answers }
  return { status: refusalStatus[error], body }
}
