import { createRequire } from 'node:module'
import zlib from 'node:zlib'
import { compressorsOf } from '../domain/uri-rules.ts'

/**
 * The library of a compressor. The driver (7.8.0, `lib/deps.js`) offers all compressors of a connection string to the
 * server. It loads the library of the compressor that both support only when it sends the first command, and that command
 * fails if the library is missing. tandem therefore loads the libraries at startup. zlib is part of Node.js.
 */
interface Library {
  package: string
  /** What is missing if the library cannot be loaded, as the error text names it. */
  lacks: string
  isInNode: boolean
}

const libraries: Readonly<Record<string, Library>> = {
  snappy: { package: 'snappy', lacks: 'the package snappy', isInNode: false },
  zstd: {
    package: '@mongodb-js/zstd',
    lacks: 'Node.js 22.15 or later, or the package @mongodb-js/zstd',
    isInNode: 'zstdCompress' in zlib,
  },
}

/** Resolves packages as the driver does, because the driver may be installed in another folder than tandem. */
const requireForDriver = () => createRequire(createRequire(import.meta.url).resolve('mongodb'))

/** Loads the package instead of only finding it, because its binary may be for another platform. */
function canLoad(library: Library): boolean {
  if (library.isInNode) return true
  try {
    requireForDriver()(library.package)
    return true
  } catch {
    return false
  }
}

/** Returns one problem for each compressor of a connection string that cannot be used here, with what to install. */
export function compressorProblems(name: string, uri: string, isUsable = canLoad): string[] {
  return [...new Set(compressorsOf(uri))].flatMap((compressor) => {
    const library = Object.hasOwn(libraries, compressor) ? libraries[compressor] : undefined
    if (!library || isUsable(library)) return []
    return [
      `${name}: Invalid URI option, compressors: ${compressor} needs ${library.lacks}, which cannot be loaded; ` +
        `install it where tandem is installed (npm install ${library.package}), or remove ${compressor} from ` +
        'compressors',
    ]
  })
}
