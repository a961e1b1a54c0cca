/* SPDX-License-Identifier: Apache-2.0 */
/* CRC32C (Castagnoli; RFC 3720, appendix B.4): the checksum of data on TCP. */
#ifndef RUNTIME_BACKEND_CPU_CRC32C_H
#define RUNTIME_BACKEND_CPU_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* The checksum of what `crc` is the checksum of, followed by p[n]; it starts as 0. */
typedef uint32_t (*crc32c_fn)(uint32_t crc, const void *p, size_t n);

crc32c_fn crc32c_best(void); /* the fastest one of this CPU */
uint32_t crc32c_portable(uint32_t crc, const void *p, size_t n);
/* NULL where the program was built for another kind of CPU. Only for a CPU that has the
 * instructions: SSE4.2 and PCLMULQDQ, or CRC32 and PMULL. */
extern const crc32c_fn crc32c_x86, crc32c_arm;

#endif
