/* SPDX-License-Identifier: Apache-2.0 */
/* Base64 (RFC 4648, with padding), as Kubernetes writes it in Secrets and kubeconfig.
 * Pure. */
#ifndef OPERATOR_DOC_BASE64_H
#define OPERATOR_DOC_BASE64_H

#include <stddef.h>

#define BASE64_SIZE(n) (((n) + 2) / 3 * 4 + 1) /* with NUL */

void base64_encode(const void *p, size_t n, char *ret); /* BASE64_SIZE(n) bytes */
/* Line breaks and blanks are skipped. ret has room for strlen(s)/4*3 + 3 bytes; a NUL
 * is put after the data. -EINVAL on any other character or wrong padding. */
int base64_decode(const char *s, void *ret, size_t *ret_n);

#endif
