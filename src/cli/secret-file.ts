import { statSync } from 'node:fs'
import process from 'node:process'

/**
 * The mode bit that lets every user read a file, not only its owner and its group. The group may read it:
 * Kubernetes gives the files of a Secret to `fsGroup` with mode 0440
 * (https://kubernetes.io/docs/tasks/configure-pod-container/security-context/).
 */
const othersMayRead = 0o004

/**
 * Returns the problem with the mode of a secret's file, and the remedy; null if there is no problem. Windows has no such
 * modes: Node.js reports each file there as readable by all (https://nodejs.org/api/fs.html#file-modes). For a file that
 * does not exist the result is null too, because the caller reports that when it reads the file.
 */
export function openFileProblem(path: string): string | null {
  if (process.platform === 'win32') return null
  const mode = modeOf(path)
  if (mode === null || (mode & othersMayRead) === 0) return null
  const octal = (mode & 0o777).toString(8).padStart(4, '0')
  return `${path} holds a secret, and every user of this machine can read it (mode ${octal}); "chmod o-r ${path}" removes that permission`
}

function modeOf(path: string): number | null {
  try {
    return statSync(path).mode
  } catch {
    return null
  }
}
