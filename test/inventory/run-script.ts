import { BSON, type Document, type MongoClient } from 'mongodb'

/**
 * Runs a script like mongosh, with the methods that `tandem inventory` uses. It skips comments.
 * @param password the text that `passwordPrompt()` returns
 */
export async function runScript(client: MongoClient, script: string, password: string): Promise<void> {
  const commands: [database: string, command: Document][] = []
  const siblingOf = (database: string) => {
    const push = (command: Document) => void commands.push([database, command])
    return {
      createUser: ({ user, ...fields }: Document) => push({ createUser: user, ...fields }),
      updateUser: (user: string, fields: Document) => push({ updateUser: user, ...fields }),
      dropUser: (user: string) => push({ dropUser: user }),
      createRole: ({ role, ...fields }: Document) => push({ createRole: role, ...fields }),
      updateRole: (role: string, fields: Document) => push({ updateRole: role, ...fields }),
      dropRole: (role: string) => push({ dropRole: role }),
      setProfilingLevel: (profile: number, options: Document = {}) => push({ profile, ...options }),
    }
  }
  const db = { getSiblingDB: siblingOf, adminCommand: (command: Document) => void commands.push(['admin', command]) }
  new Function('db', 'EJSON', 'passwordPrompt', script)(db, BSON.EJSON, () => password)
  for (const [database, command] of commands) await client.db(database).command(command)
}
