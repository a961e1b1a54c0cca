/* SPDX-License-Identifier: Apache-2.0 */
/* As the user, without a right of root's: what a user cannot see, such as whether root can
 * write to run_dir, is judged by what he can see of it. Python, munge and Slurm are asked
 * by their own programs. The plugin is not loaded but read: it carries its version, and
 * this program may be static. Called by slurm_check.c. */
#include "runtime/launch/slurm_facts.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <glob.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "runtime/base/fd.h"
#include "runtime/base/mem.h"

#define CONF_MAX_BYTES   (1u << 20)
#define PLUGIN_MAX_BYTES (64u << 20)
#define PYTHON_MS        60000u
#define INCLUDES_MAX     4                 /* of files that include files */
#define DEFAULT_RUN_DIR  "/run/ringmaster" /* RUNTIME_DIR: from the Makefile */
#define PLUGIN_PATH_MAX  600

/* --- commands --------------------------------------------------------------------- */

/* The first line that a shell's command prints. */
static void facts_run(struct slurm_commands *s,
                      char *script,
                      uint64_t timeout_ms,
                      char ret[FACT_MAX])
{
    char sh[] = "sh", c[] = "-c";
    char *argv[] = {sh, c, script, NULL};
    CLEANUP(strbuf_release) struct strbuf out = {0};
    struct err err = ERR_INIT;

    strbuf_init(&out, 65536);
    (void)slurm_commands_run(s, argv, timeout_ms, &out, &err); /* no line says it */
    (void)snprintf(ret, FACT_MAX, "%.*s", (int)strcspn(strbuf_str(&out), "\n"),
                   strbuf_str(&out));
}

void slurm_munge_socket(const char *auth_info, char *ret, size_t size_bytes)
{
    const char *at = strstr(auth_info, "socket=");

    *ret = '\0';
    if (at && !strchr(at, '\''))
        (void)snprintf(ret, size_bytes, "'--socket=%.*s' ", (int)strcspn(at + 7, ","),
                       at + 7);
}

static void facts_read_munge(struct slurm_commands *s,
                             const struct facts_question *q,
                             char ret[FACT_MAX])
{
    char socket[300], script[600];

    if (!q->has_credential) {
        (void)snprintf(ret, FACT_MAX, "the host that asks has no munge");
        return;
    }
    slurm_munge_socket(q->auth_info, socket, sizeof(socket));
    /* 17: another node with the same munged has opened it before */
    (void)snprintf(
        script, sizeof(script),
        "command -v unmunge >/dev/null || { echo no unmunge on PATH; exit; }; "
        "o=$(printf '%%s' \"$" FACTS_CREDENTIAL "\" | unmunge %s2>&1); c=$?; "
        "o=${o#STATUS:}; case $c in 0|17) echo ok;; "
        "*) echo \"${o:-code $c}\";; esac",
        socket);
    facts_run(s, script, SLURM_COMMAND_MS, ret);
}

static void
facts_read_python(struct slurm_commands *s, const char *dir, struct node_facts *f)
{
    char script[1024], line[FACT_MAX], *space;

    (void)snprintf(
        script, sizeof(script),
        "p=$(command -v python3 || command -v python) || exit; "
        "[ ! -d '%s/python' ] || export "
        "PYTHONPATH='%s/python'${PYTHONPATH:+:$PYTHONPATH}; "
        "v=$(\"$p\" -c 'from _hvd._version import RINGMASTER_VERSION as v; print(v)' "
        "2>/dev/null); "
        "echo \"${v:--} $p\"",
        dir, dir);
    facts_run(s, script, PYTHON_MS, line);
    space = strchr(line, ' ');
    if (!space)
        return;
    *space = '\0';
    (void)snprintf(f->python, sizeof(f->python), "%s", space + 1);
    if (strcmp(line, "-") != 0)
        (void)snprintf(f->package, sizeof(f->package), "%s", line);
}

/* --- plugstack.conf --------------------------------------------------------------- */

/* True: a line of ours is in this file or one that it includes. */
static bool facts_find_plugin(const char *conf, int depth, struct plugstack_line *ret)
{
    AUTOFREE char *text = NULL;
    size_t n;

    if (depth > INCLUDES_MAX || fd_read_file(conf, CONF_MAX_BYTES, &text, &n, NULL) < 0)
        return false;
    for (char *rest = text, *line; (line = strsep(&rest, "\n")) != NULL;) {
        glob_t found = {.gl_pathc = 0};
        struct plugstack_line l;

        plugstack_line_parse(line, &l);
        if (l.is_ours) {
            *ret = l;
            return true;
        }
        if (!l.is_include || glob(l.path, 0, NULL, &found) != 0)
            continue;
        bool is_there = false;
        for (size_t i = 0; !is_there && i < found.gl_pathc; i++)
            is_there = facts_find_plugin(found.gl_pathv[i], depth + 1, ret);
        globfree(&found);
        if (is_there)
            return true;
    }
    return false;
}

/* A name without a folder is in one of Slurm's, the first that has it. */
static void
facts_put_path(const char *dirs, const char *name, char ret[PLUGIN_PATH_MAX])
{
    (void)snprintf(ret, PLUGIN_PATH_MAX, "%s", name);
    for (size_t n; *name != '/' && *dirs; dirs += n + (dirs[n] == ':')) {
        n = strcspn(dirs, ":");
        (void)snprintf(ret, PLUGIN_PATH_MAX, "%.*s/%s", (int)n, dirs, name);
        if (access(ret, F_OK) == 0)
            return;
    }
}

static void facts_read_plugin(const struct facts_question *q,
                              struct plugstack_line *line,
                              struct node_facts *f)
{
    AUTOFREE char *bytes = NULL;
    struct err err = ERR_INIT;
    char path[PLUGIN_PATH_MAX];
    size_t n;

    *line = (struct plugstack_line){.is_ours = false};
    if (!facts_find_plugin(q->plugstack, 0, line)) {
        (void)snprintf(f->plugstack, FACT_MAX,
                       access(q->plugstack, R_OK) == 0
                           ? "%.80s has no line with spank_hvd.so"
                           : "%.80s cannot be read",
                       q->plugstack);
        return;
    }
    facts_put_path(q->plugin_dir, line->path, path);
    if (fd_read_file(path, PLUGIN_MAX_BYTES, &bytes, &n, &err) < 0)
        (void)snprintf(f->plugstack, FACT_MAX, "%.120s", err.text);
    else if (!spank_version_find(bytes, n, f->plugin, f->plugin_slurm))
        (void)snprintf(f->plugstack, FACT_MAX, "%.80s is another version of the plugin",
                       path);
    else
        (void)snprintf(f->plugstack, FACT_MAX, FACTS_OK);
}

/* slurmstepd makes run_dir as root. */
static void facts_read_run_dir(const char *run_dir, char ret[FACT_MAX])
{
    char dir[256], *slash;
    struct statvfs fs;
    struct stat st;

    (void)snprintf(dir, sizeof(dir), "%s", *run_dir ? run_dir : DEFAULT_RUN_DIR);
    if (stat(dir, &st) == 0 && (!S_ISDIR(st.st_mode) || st.st_uid != 0)) {
        (void)snprintf(ret, FACT_MAX, "%.80s is no directory of root's", dir);
        return;
    }
    while (stat(dir, &st) != 0 && (slash = strrchr(dir, '/')) && slash != dir)
        *slash = '\0';
    if (statvfs(dir, &fs) != 0)
        (void)snprintf(ret, FACT_MAX, "%.60s: %s", dir, strerror(errno));
    else if (fs.f_flag & ST_RDONLY)
        (void)snprintf(ret, FACT_MAX, "%.80s is on a read-only file system", dir);
    else if (fs.f_bavail == 0 || fs.f_favail == 0)
        (void)snprintf(ret, FACT_MAX, "%.80s is on a full file system", dir);
    else
        (void)snprintf(ret, FACT_MAX, FACTS_OK);
}

/* --- the host --------------------------------------------------------------------- */

static uint32_t facts_count(const char *dir, const char *prefix)
{
    DIR *d = opendir(dir);
    const struct dirent *entry;
    uint32_t n = 0;

    while (d && (entry = readdir(d)) != NULL) {
        size_t length = strlen(prefix);

        n += entry->d_name[0] != '.' && strncmp(entry->d_name, prefix, length) == 0
             && (!length
                 || (entry->d_name[length] >= '0' && entry->d_name[length] <= '9'));
    }
    if (d)
        (void)closedir(d);
    return n;
}

/* The address that packets to srun leave from; nothing is sent. */
static bool facts_route(struct sockaddr_storage *ret)
{
    const char *to = getenv("SLURM_LAUNCH_NODE_IPADDR");
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(9)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(9)};
    socklen_t n = sizeof(*ret);
    bool is_v4 = to && inet_pton(AF_INET, to, &v4.sin_addr) == 1;

    if (!to || (!is_v4 && inet_pton(AF_INET6, to, &v6.sin6_addr) != 1))
        return false;
    CLEANUP(fd_close)
    int fd = socket(is_v4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const struct sockaddr *a =
        is_v4 ? (const struct sockaddr *)&v4 : (const struct sockaddr *)&v6;
    return fd >= 0 && connect(fd, a, is_v4 ? sizeof(v4) : sizeof(v6)) == 0
           && getsockname(fd, (struct sockaddr *)ret, &n) == 0;
}

static bool facts_same_address(const struct sockaddr *a,
                               const struct sockaddr_storage *b)
{
    if (a->sa_family != b->ss_family)
        return false;
    if (a->sa_family == AF_INET)
        return ((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr
               == ((const struct sockaddr_in *)(const void *)b)->sin_addr.s_addr;
    return a->sa_family == AF_INET6
           && memcmp(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr,
                     &((const struct sockaddr_in6 *)(const void *)b)->sin6_addr, 16)
                  == 0;
}

static void facts_read_interfaces(struct node_facts *f)
{
    struct sockaddr_storage own = {.ss_family = AF_UNSPEC};
    struct ifaddrs *list = NULL;
    struct strbuf all;

    strbuf_init(&all, FACT_MAX - 1);
    (void)facts_route(&own); /* on the host that asks there is none */
    if (getifaddrs(&list) != 0)
        return;
    for (const struct ifaddrs *i = list; i; i = i->ifa_next) {
        if (!i->ifa_addr || !(i->ifa_flags & IFF_UP) || (i->ifa_flags & IFF_LOOPBACK)
            || (i->ifa_addr->sa_family != AF_INET
                && i->ifa_addr->sa_family != AF_INET6))
            continue;
        if (!*f->iface && facts_same_address(i->ifa_addr, &own))
            (void)snprintf(f->iface, FACT_MAX, "%s", i->ifa_name);
        if (!strstr(strbuf_str(&all), i->ifa_name))
            strbuf_printf(&all, "%s%s", all.n ? "," : "", i->ifa_name);
    }
    freeifaddrs(list);
    (void)snprintf(f->ifaces, FACT_MAX, "%s", strbuf_str(&all));
    strbuf_release(&all);
}

static void facts_read_host(struct node_facts *f)
{
    const char *name = getenv("SLURMD_NODENAME");
    struct rlimit limit;
    struct statvfs fs;

    if (name && *name)
        (void)snprintf(f->node, FACT_MAX, "%s", name);
    else if (gethostname(f->node, FACT_MAX - 1) != 0)
        (void)snprintf(f->node, FACT_MAX, "unknown");
    (void)snprintf(f->agent, FACT_MAX, "%s", HVD_VERSION_STRING);
    f->memlock_bytes = UINT64_MAX;
    if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        f->memlock_bytes = limit.rlim_cur;
    if (statvfs("/dev/shm", &fs) == 0)
        f->shm_bytes = (uint64_t)fs.f_blocks * fs.f_frsize;
    f->gpus = facts_count("/dev", "nvidia");
    f->rdma = facts_count("/sys/class/infiniband", "");
    facts_read_interfaces(f);
}

void slurm_facts_read(struct slurm_commands *s,
                      const struct facts_question *q,
                      struct node_facts *ret)
{
    char versions[] = "v=$(slurmd -V 2>/dev/null || scontrol -V); echo \"${v##* }\"";
    struct plugstack_line line;

    *ret = (struct node_facts){.state = NULL};
    facts_read_host(ret);
    facts_read_plugin(q, &line, ret);
    facts_read_run_dir(line.run_dir, ret->run);
    facts_read_python(s, *line.dir ? line.dir : RUNTIME_DIR, ret);
    facts_read_munge(s, q, ret->munge);
    facts_run(s, versions, SLURM_COMMAND_MS, ret->slurm);
}
