/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Libraries that are opened at run time, so that libsircl.so needs only libc. One table: soname, Debian
 * package, symbols. Absent: one error that names the package.
 */
#ifndef BASE_DL_H
#define BASE_DL_H
#include "base/error.h"

enum dl_lib { DL_SODIUM, DL_IBVERBS, DL_RDMACM, DL_HWLOC, DL_COUNT };
/*
 * Opens (once per process, kept) and fills `table`, an array of function pointers in the order of the names
 * that dl.c lists for this library. SIRCL_SYSTEM_ERROR: "libsodium.so.23 ... apt-get install libsodium23".
 * Thread-safe.
 */
sircl_result_t dl_open(enum dl_lib, void *const **table);
#endif
