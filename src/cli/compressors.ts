import { createRequire } from 'node:module'
import zlib from 'node:zlib'
import { compressorsOf } from '../domain/uri-rules.ts'

/**
 * The libraries of compressors. The driver (7.8.0, `lib/deps.js`) offers every compressor of a connection string to the
 * server. It loads the library of the agreed one with the first command and fails if there is none, so tandem loads it
 * beforehand. zlib is part of Node.js.
 */
interface Library {
  package: string
  /** What a user without the package lacks. */
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

/** Resolves packages where the driver finds them, which may be installed elsewhere than tandem's own. */
const requireForDriver = () => createRequire(createRequire(import.meta.url).resolve('mongodb'))

/** The package is loaded and not only found, because its binary may not be one for this platform. */
function canLoad(library: Library): boolean {
  if (library.isInNode) return true
  try {
    requireForDriver()(library.package)
    return true
  } catch {
    return false
  }
}

/** The compressors of a connection string that cannot be used here, each with what to install. */
export function compressorProblems(name: string, uri: string, isUsable = canLoad): string[] {
  return [...new Set(compressorsOf(uri))].flatMap((compressor) => {
    const library = Object.hasOwn(libraries, compressor) ? libraries[compressor] : undefined
    if (!library || isUsable(library)) return []
    return [
      `${name}: Invalid URI option, compressors: ${compressor} needs ${library.lacks}, which cannot be loaded; install it where tandem is installed (npm install ${library.package}), or remove ${compressor} from compressors`,
    ]
  })
}
