/* SPDX-License-Identifier: Apache-2.0 */
/* Files with jobs in, problems out. Called by offline.c and by hvd-submit. */
#include "operator/cli/job_input.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "operator/cli/core/show_text.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"

#define FILE_MAX (64u << 20)

static void problem_put_part(const char *file, uint32_t line, const char *p, size_t n)
{
    struct strbuf b;

    strbuf_init(&b, 1u << 20);
    text_put_safe(&b, file, strlen(file), false);
    if (line)
        strbuf_printf(&b, ":%u", line);
    strbuf_puts(&b, ": ");
    text_put_safe(&b, p, n, false);
    (void)fprintf(stderr, "%s\n", strbuf_str(&b));
    strbuf_release(&b);
}

void problem_put(const char *file, uint32_t line, const char *text)
{
    problem_put_part(file, line, text, strlen(text));
}

/* True if the line occurs in the text before it. */
static bool is_repeated(const char *all, const char *line, size_t n)
{
    for (const char *p = all; p < line; p += strcspn(p, "\n") + 1) {
        if (strcspn(p, "\n") == n && memcmp(p, line, n) == 0)
            return true;
    }
    return false;
}

void problems_put(const char *file, const struct node *object, const char *all)
{
    for (const char *p = all; *p;) {
        size_t n = strcspn(p, "\n");

        if (n > 0 && !is_repeated(all, p, n))
            problem_put_part(file, object ? job_file_line(object, p) : 0, p, n);
        p += n + (p[n] == '\n');
    }
}

static int read_stdin(char **ret_text, size_t *ret_n, struct err *err)
{
    struct strbuf b;
    char part[65536];
    ssize_t n;

    strbuf_init(&b, FILE_MAX);
    while ((n = read(STDIN_FILENO, part, sizeof(part))) > 0)
        strbuf_add(&b, part, (size_t)n);
    if (n < 0 || strbuf_status(&b)) {
        strbuf_release(&b);
        return err_set(err, -EIO,
                       "standard input: cannot be read, or has more than 64 MiB");
    }
    *ret_n = b.n;
    *ret_text = b.n ? strbuf_take(&b) : mem_strdup("");
    return *ret_text ? 0 : err_set(err, -ENOMEM, "out of memory");
}

const char *job_input_name(const char *file)
{
    return strcmp(file, "-") == 0 ? "stdin" : file;
}

int job_input_read(struct arena *a,
                   const char *file,
                   const struct node **ret,
                   struct err *err)
{
    AUTOFREE char *text = NULL;
    uint32_t line = 0;
    size_t n = 0;
    int rc = strcmp(file, "-") == 0 ? read_stdin(&text, &n, err)
                                    : fd_read_file(file, FILE_MAX, &text, &n, err);

    if (rc < 0)
        return rc;
    if (job_file_read(a, text, n, ret, &line, err) < 0) {
        problem_put(job_input_name(file), line, err->text);
        return 1;
    }
    return 0;
}
