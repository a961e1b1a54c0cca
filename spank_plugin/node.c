/* SPDX-License-Identifier: Apache-2.0 */
/* Once per node and step, before any task: creates the directory
 * /run/ringmaster/<job>.<step>.<node number> with the files `token` and `hosts`.
 *
 * /run, because it is a memory file system owned by root: the path cannot be replaced
 * (a base directory that others may write to is refused), and job containers with a
 * private /tmp per job (job_container/tmpfs) do not hide it. The node number is in the
 * name because several slurmd may share one machine. The directory is removed at the
 * end of the step (exit). After a crash of slurmstepd the next step of that name
 * replaces it, or the next boot removes it.
 *
 * Root removes files that a user may have changed: it opens the directory without
 * following links and unlinks only names inside it. */
#include "spank_plugin/node.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "spank_plugin/layout.h"
#include "spank_plugin/seal.h"
#include "spank_plugin/ticket.h"

#define MAX_HOSTFILE_BYTES (32u << 20)

static int open_dir_at(int at, const char *path)
{
    return openat(at, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* Unlinks files only; a directory that the user created in it stays, and so does
 * ours. */
static void remove_dir(const char *base, const char *name)
{
    CLEANUP(fd_close) int base_fd = open_dir_at(AT_FDCWD, base);
    if (base_fd < 0)
        return;
    int fd = open_dir_at(base_fd, name);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (!dir) {
        fd_close(&fd);
        return;
    }
    for (struct dirent *e; (e = readdir(dir)) != NULL;)
        (void)unlinkat(fd, e->d_name, 0); /* "." and ".." fail, as they should */
    (void)closedir(dir);
    /* a failure is reported by the next step of this name */
    (void)unlinkat(base_fd, name, AT_REMOVEDIR);
}

/* Creates and opens the directory that all steps share. If a user could write to it,
 * root would create and chown whatever the user puts there. */
static int open_base(const char *base, int *ret_fd, struct err *err)
{
    struct stat st;
    if (mkdir(base, 0755) != 0 && errno != EEXIST)
        return err_errno(err, errno, "cannot make %s (plugstack.conf: run_dir)", base);
    CLEANUP(fd_close) int fd = open_dir_at(AT_FDCWD, base);
    if (fd < 0 || fstat(fd, &st) != 0)
        return err_errno(err, errno, "cannot open %s (plugstack.conf: run_dir)", base);
    if ((st.st_uid != 0 && st.st_uid != geteuid()) || st.st_mode & 022)
        return err_set(err, -EPERM,
                       "%s has owner %u and mode %04o, but must be root's and writable "
                       "for root alone (plugstack.conf: run_dir)",
                       base, (unsigned)st.st_uid, (unsigned)st.st_mode & 07777);
    *ret_fd = fd;
    fd = -1;
    return 0;
}

int node_side_make_dir(struct node_side *n,
                       const char *base,
                       const struct plugin_step *step,
                       struct err *err)
{
    char path[sizeof(n->base) + sizeof(n->name) + 1];
    CLEANUP(fd_close) int base_fd = -1;
    (void)snprintf(n->base, sizeof(n->base), "%s", base);
    (void)snprintf(n->name, sizeof(n->name), "%u.%u.%u", step->job_id, step->step_id,
                   step->node_id);
    (void)snprintf(path, sizeof(path), "%s/%s", n->base, n->name);
    int rc = open_base(n->base, &base_fd, err);
    if (rc)
        return rc;
    rc = mkdirat(base_fd, n->name, 0700);
    if (rc != 0 && errno == EEXIST) {
        remove_dir(n->base, n->name);
        rc = mkdirat(base_fd, n->name, 0700);
    }
    if (rc != 0)
        return err_errno(err, errno, "cannot make %s", path);
    n->has_dir = true;
    if (fchownat(base_fd, n->name, step->uid, step->gid, AT_SYMLINK_NOFOLLOW) != 0)
        return err_errno(err, errno, "cannot change the owner of %s to user %u", path,
                         (unsigned)step->uid);
    (void)snprintf(n->token_file, sizeof(n->token_file), "%s/token", path);
    (void)snprintf(n->hostfile, sizeof(n->hostfile), "%s/hosts", path);
    return 0;
}

static int open_ticket(struct spank_handle *sp, struct ticket *ret, struct err *err)
{
    const char *cred = slurm_io_getenv(sp, TICKET_ENV);
    AUTOFREE void *text = NULL;
    size_t n = 0;
    if (!cred)
        return err_set(err, -ENOENT,
                       "srun sent no job token (%s is not set): spank_hvd.so is "
                       "missing in the plugstack.conf where srun ran",
                       TICKET_ENV);
    int rc = seal_open(slurm_io_auth_info(), cred, &text, &n, err);
    if (rc)
        return rc;
    rc = ticket_parse(text, n, ret, err);
    explicit_bzero(text, n);
    return rc;
}

int node_side_fill(struct node_side *n, struct spank_handle *sp, struct err *err)
{
    struct ticket t;
    CLEANUP(strbuf_release) struct strbuf hosts;
    strbuf_init(&hosts, MAX_HOSTFILE_BYTES);
    int rc = open_ticket(sp, &t, err);
    if (rc)
        return rc;
    n->rdv_port = t.port;
    n->master_port = ticket_master_port(&t);
    rc = token_write_file(n->token_file, &t.token, err);
    token_wipe(&t.token);
    if (!rc)
        rc = layout_hostfile(slurm_io_getenv, sp, &hosts, err);
    if (!rc)
        rc = fd_write_file(n->hostfile, strbuf_str(&hosts), hosts.n, 0644, err);
    return rc;
}

void node_side_release(struct node_side *n)
{
    if (n->has_dir)
        remove_dir(n->base, n->name);
    n->has_dir = false;
}
