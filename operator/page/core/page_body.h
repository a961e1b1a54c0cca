/* SPDX-License-Identifier: Apache-2.0 */
/* Texts in the page's answers. They come from users' programs and from the network. Pure. */
#ifndef OPERATOR_PAGE_CORE_PAGE_BODY_H
#define OPERATOR_PAGE_CORE_PAGE_BODY_H

#include <stdbool.h>
#include <stddef.h>

#include "runtime/base/strbuf.h"

#define PAGE_TEXT_MAX (512u << 10) /* of a log or of stacks */
#define PAGE_BODY_MAX (4u << 20)   /* of an answer */

/* {"error": why} */
void page_body_error(const char *why, struct strbuf *out);
/* A JSON string of text that may hold anything: what text_put_safe (cli/core/show_text.h)
 * changes is changed, lines and tabs stay. Of a longer text the last PAGE_TEXT_MAX bytes,
 * from the begin of a line; then the result is true. */
bool page_body_text(const char *p, size_t n, struct strbuf *out);

#endif
