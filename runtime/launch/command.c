/* SPDX-License-Identifier: Apache-2.0 */
/* Commands are checked before anything is started: the error of a failed exec would be
 * printed by every rank, and "No such file or directory" names no file. Called by
 * agent.c, await.c, local_job.c, link.c, remote_agent.c and check_build.c. */
#include "runtime/launch/command.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEFAULT_SEARCH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

/* 0: executable file, 126: not executable, 127: does not exist. */
static int command_probe(const char *path)
{
    struct stat st;
    if (stat(path, &st) < 0)
        return errno == EACCES ? 126 : 127;
    return S_ISREG(st.st_mode) && access(path, X_OK) == 0 ? 0 : 126;
}

static int command_search_path(const char *name, const char *search, char *ret_path)
{
    int worst = 127;
    for (const char *p = search;; p++) {
        size_t len = strcspn(p, ":");
        int n = snprintf(ret_path, PATH_MAX, "%.*s%s%s", (int)len, p, len ? "/" : "./",
                         name);
        int code = n < 0 || n >= PATH_MAX ? 127 : command_probe(ret_path);
        if (!code)
            return 0;
        if (code == 126)
            worst = 126;
        p += len;
        if (!*p)
            return worst;
    }
}

static int command_refuse(const char *path, int code, struct err *err)
{
    struct stat st;
    if (code == 127)
        (void)err_set(err, -ENOENT, "command %s does not exist", path);
    else if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        (void)err_set(err, -EACCES, "command %s is a folder", path);
    else
        (void)err_set(err, -EACCES, "command %s is not executable (chmod +x)", path);
    return code;
}

static int
command_refuse_name(const char *name, const char *search, int code, struct err *err)
{
    static const char *const other[] = {"python3", "python", "python3.12", "python3.11",
                                        "python3.10"};
    char found[PATH_MAX];
    if (code == 126) {
        (void)err_set(err, -EACCES,
                      "command %s is in PATH but not executable (chmod +x)", name);
        return code;
    }
    for (size_t i = 0;
         !strncmp(name, "python", 6) && i < sizeof(other) / sizeof(*other); i++)
        if (strcmp(name, other[i]) != 0
            && command_search_path(other[i], search, found) == 0) {
            (void)err_set(err, -ENOENT,
                          "command %s was not found in PATH (%.120s); there is %s",
                          name, search, found);
            return code;
        }
    (void)err_set(err, -ENOENT, "command %s was not found in PATH (%.240s)", name,
                  search);
    return code;
}

int command_find(const char *name, const char *search, char *ret_path, struct err *err)
{
    char path[PATH_MAX];
    if (!*name) {
        (void)err_set(err, -ENOENT, "the command is empty");
        return 127;
    }
    if (strchr(name, '/')) {
        int code = command_probe(name);
        if (code)
            return command_refuse(name, code, err);
        (void)snprintf(ret_path, PATH_MAX, "%s", name);
        return 0;
    }
    search = search ? search : DEFAULT_SEARCH;
    int code = command_search_path(name, search, path);
    if (code)
        return command_refuse_name(name, search, code, err);
    memcpy(ret_path, path, strlen(path) + 1);
    return 0;
}

void command_enter(const char *dir, char *ret, size_t size_bytes)
{
    const char *home = getenv("HOME");
    ret[0] = '\0';
    if (!*dir || chdir(dir) == 0)
        return;
    int why = errno;
    const char *there = home && chdir(home) == 0 ? home : "/";
    (void)!chdir(there);
    (void)snprintf(ret, size_bytes,
                   "cannot change to directory %s (%s); continuing in %s", dir,
                   strerror(why), there);
}

static bool command_is_python(const char *word)
{
    const char *base = strrchr(word, '/');
    base = base ? base + 1 : word;
    if (strncmp(base, "python", 6) != 0)
        return false;
    for (base += 6; *base; base++)
        if (!isdigit((unsigned char)*base) && *base != '.')
            return false;
    return true;
}

void command_python_warning(char *const *argv, char *ret, size_t size_bytes)
{
    ret[0] = '\0';
    if (!argv[0] || !command_is_python(argv[0]))
        return;
    for (int i = 1; argv[i] && argv[i][0] == '-' && argv[i][1] && argv[i][1] != '-';
         i++) {
        for (const char *p = argv[i] + 1; *p; p++) {
            if (*p == 'c' || *p == 'm') /* the rest of the line is the program */
                return;
            if (*p == 'I' || *p == 'E') {
                (void)snprintf(
                    ret, size_bytes,
                    "%s -%c ignores PYTHONPATH, so that \"import horovod\" does not "
                    "find this runtime; leave out -%c or install the wheel "
                    "ringmaster-horovod in the image",
                    argv[0], *p, *p);
                return;
            }
            if (*p == 'W'
                /* has a value: the rest of the word, or the next word */
                || *p == 'X') {
                i += p[1] == '\0' && argv[i + 1] != NULL;
                break;
            }
        }
    }
}
