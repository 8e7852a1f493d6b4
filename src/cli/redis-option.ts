import type { Command } from 'commander'
import { parseRedisUrl } from '../domain/redis-url.ts'

export function addRedisOption(command: Command): Command {
  return command.option(
    '--redis <url>',
    'Redis by which several instances notice each other faster (or environment variable TANDEM_REDIS)',
  )
}

/** Null without one. Ends the parsing with an error when it may not be used, without repeating it. */
export function readRedis(
  command: Command,
  options: { redis?: string },
  env: Readonly<Record<string, string | undefined>>,
): string | null {
  const url = options.redis ?? env['TANDEM_REDIS'] ?? ''
  if (url === '') {
    if (options.redis !== undefined) command.error('error: redis: must not be empty; give --redis URL or leave it out')
    return null
  }
  const parsed = parseRedisUrl(url)
  if ('problem' in parsed) command.error(`error: redis: ${parsed.problem} (--redis or TANDEM_REDIS)`)
  return url
}
