/* SPDX-License-Identifier: Apache-2.0 */
/* Once per node and step, before any task: creates the directory
 * /run/ringmaster/<job>.<step>.<node number>.<pid> with the files `token` and `hosts`.
 *
 * /run, because it is a memory file system owned by root: the path cannot be replaced
 * (a base directory that others may write to is refused), and job containers with a
 * private /tmp per job (job_container/tmpfs) do not hide it. The process id is that of
 * slurmstepd: components of a heterogeneous step have the same job, step and node
 * number, and may share a machine. The directory is removed at the end of the step
 * (exit). After a crash of slurmstepd it stays until the next boot.
 *
 * Invariant: the user can read the two files and change nothing, neither in the
 * directory nor in a file, so a step occupies less than MAX_HOSTFILE_BYTES + 4 KiB of
 * /run and root removes exactly what it has created. A file of the user's own would
 * have no such bound, and a group may have other members: therefore all belongs to root
 * and one ACL entry lets the user read. Root opens the files while it is root; they are
 * filled through these descriptors as the user, for whom alone munge decrypts. */
#include "spank_plugin/node.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/base/sha256.h"
#include "spank_plugin/ends.h"
#include "spank_plugin/layout.h"
#include "spank_plugin/pages.h"
#include "spank_plugin/seal.h"

#define MAX_HOSTFILE_BYTES ((1u << 20) - 8192u)
#define WRITE_MS           30000u

static const char token_name[] = "token", hosts_name[] = "hosts";

static int open_dir_at(int at, const char *path)
{
    return openat(at, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

static void remove_dir(int base_fd, const char *name)
{
    CLEANUP(fd_close) int fd = open_dir_at(base_fd, name);
    if (fd >= 0) {
        (void)unlinkat(fd, token_name, 0);
        (void)unlinkat(fd, hosts_name, 0);
    }
    (void)unlinkat(base_fd, name, AT_REMOVEDIR);
}

/* Lets one user read; root can without an entry. The kernel's format of an ACL (linux/posix_acl_xattr.h), little
 * endian as our machines are: libacl would be the plugin's only use of it. */
static int allow_user(int fd, uid_t uid, bool is_dir, struct err *err)
{
    enum { OWNER = 0x01, USER = 0x02, GROUP = 0x04, MASK = 0x10, OTHER = 0x20 };
    const uint32_t none = UINT32_MAX;
    const uint16_t all = is_dir ? 7 : 6, some = is_dir ? 5 : 4;
    struct {
        uint32_t version;
        struct {
            uint16_t tag, perm;
            uint32_t id;
        } v[5];
    } acl = {2,
             {{OWNER, all, none},
              {USER, some, uid},
              {GROUP, 0, none},
              {MASK, some, none},
              {OTHER, 0, none}}};
    if (uid == 0)
        return 0;
    if (fsetxattr(fd, "system.posix_acl_access", &acl, sizeof(acl), 0) != 0)
        return err_errno(
            err, errno,
            "cannot let user %u read the files in plugstack.conf: run_dir, "
            "whose file system must support POSIX ACLs",
            (unsigned)uid);
    return 0;
}

/* Creates and opens the directory that all steps share. If a user could write to it,
 * root would create files wherever the user points. */
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

static int make_file(int dir_fd,
                     const char *path,
                     const char *name,
                     uid_t uid,
                     int *ret_fd,
                     struct err *err)
{
    const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    CLEANUP(fd_close) int fd = openat(dir_fd, name, flags, 0600);
    if (fd < 0)
        return err_errno(err, errno, "cannot make %s/%s", path, name);
    int rc = allow_user(fd, uid, false, err);
    if (rc)
        return rc;
    *ret_fd = fd;
    fd = -1;
    return 0;
}

int node_side_make_dir(struct node_side *n,
                       const char *base,
                       const struct plugin_step *step,
                       struct err *err)
{
    char path[sizeof(n->token_file) - sizeof(token_name)];
    CLEANUP(fd_close) int base_fd = -1;
    n->uid = step->uid;
    (void)snprintf(n->name, sizeof(n->name), "%u.%u.%u.%ld", step->job_id,
                   step->step_id, step->node_id, (long)getpid());
    (void)snprintf(path, sizeof(path), "%s/%s", base, n->name);
    int rc = open_base(base, &base_fd, err);
    if (rc)
        return rc;
    remove_dir(base_fd, n->name); /* a crash left it, and the id has come again */
    if (mkdirat(base_fd, n->name, 0700) != 0) /* the same sentence on all nodes */
        return err_errno(err, errno,
                         "cannot make a folder in %s (plugstack.conf: run_dir)", base);
    n->base_fd = base_fd;
    base_fd = -1;
    CLEANUP(fd_close) int dir_fd = open_dir_at(n->base_fd, n->name);
    if (dir_fd < 0)
        return err_errno(err, errno, "cannot open %s", path);
    rc = make_file(dir_fd, path, token_name, step->uid, &n->token_fd, err);
    if (!rc)
        rc = make_file(dir_fd, path, hosts_name, step->uid, &n->hosts_fd, err);
    if (!rc)
        rc = allow_user(dir_fd, step->uid, true, err);
    (void)snprintf(n->token_file, sizeof(n->token_file), "%s/%s", path, token_name);
    (void)snprintf(n->hostfile, sizeof(n->hostfile), "%s/%s", path, hosts_name);
    return rc;
}

/* Without it, ends of tasks are not reported. */
static void node_side_share(struct node_side *n, struct spank_handle *sp)
{
    uint32_t n_tasks = 0;
    if (!slurm_io_local_tasks(sp, &n_tasks) || n_tasks > WORLD_MAX_RANKS)
        return;
    size_t size_bytes = sizeof(*n->tasks) + n_tasks * sizeof(n->tasks->rank_1[0]);
    void *p = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                   -1, 0);
    if (p == MAP_FAILED)
        return;
    n->tasks = p;
    n->tasks->n = n_tasks;
}

void node_side_note_task(const struct node_side *n,
                         struct spank_handle *sp,
                         const struct contract *c)
{
    struct node_tasks *t = n->tasks;
    uint32_t i;
    if (!t || !slurm_io_local_task(sp, &i) || i >= t->n)
        return;
    (void)snprintf(t->srun, sizeof(t->srun), "%s",
                   c->rdv_host); /* all write the same */
    (void)snprintf(t->job_id, sizeof(t->job_id), "%s", c->job_id);
    (void)snprintf(t->host, sizeof(t->host), "%s", c->hostname);
    t->rank_1[i] = c->place.rank + 1;
}

void node_side_note_start(const struct node_side *n)
{
    if (n->tasks)
        n->tasks->has_started = true;
}

bool node_side_has_started(const struct node_side *n)
{
    return n->tasks && n->tasks->has_started;
}

void node_side_report_end(struct node_side *n, struct spank_handle *sp)
{
    const struct node_tasks *t = n->tasks;
    struct failure f = {.at_wall_us = clock_wall_us()};
    uint32_t i;
    int status;
    if (!t || n->ticket.ends_port == 0 || n->has_reported
        || !slurm_io_exit_status(sp, &status) || status == 0
        || !slurm_io_local_task(sp, &i) || i >= t->n || t->rank_1[i] == 0)
        return;
    f.rank = (int32_t)(t->rank_1[i] - 1);
    f.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
    f.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    (void)snprintf(f.host, sizeof(f.host), "%s", t->host);
    int rc = end_report(&n->ticket.token, t->srun, n->ticket.ends_port, t->job_id, &f,
                        clock_now_ns() + END_REPORT_MS * NS_PER_MS, NULL);
    n->has_reported = rc || end_is_cause(&f); /* srun itself prints each end */
}

int node_side_open_ticket(struct node_side *n, struct spank_handle *sp, struct err *err)
{
    const char *cred = slurm_io_getenv(sp, TICKET_ENV);
    AUTOFREE void *text = NULL;
    size_t size_bytes = 0;
    if (!cred)
        return err_set(err, -ENOENT,
                       "srun sent no job token (%s is not set): spank_hvd.so is "
                       "missing in the plugstack.conf where srun ran",
                       TICKET_ENV);
    int rc = seal_open(slurm_io_auth_info(), cred, &text, &size_bytes, err);
    if (rc)
        return rc;
    rc = ticket_parse(text, size_bytes, &n->ticket, err);
    explicit_bzero(text, size_bytes);
    n->has_ticket = rc == 0;
    if (!rc)
        node_side_share(n, sp);
    return rc;
}

static int
write_file(int *fd, const char *path, const void *p, size_t n, struct err *err)
{
    int rc = fd_write_full(*fd, p, n, clock_now_ns() + WRITE_MS * NS_PER_MS);
    fd_close(fd);
    return rc ? err_errno(err, -rc, "cannot write %s", path) : 0;
}

int node_side_fill(struct node_side *n, struct spank_handle *sp, struct err *err)
{
    char hex[2 * sizeof(n->ticket.token.key) + 2];
    CLEANUP(strbuf_release) struct strbuf hosts;
    strbuf_init(&hosts, MAX_HOSTFILE_BYTES);
    hex_encode(n->ticket.token.key, sizeof(n->ticket.token.key), hex);
    hex[sizeof(hex) - 2] = '\n';
    int rc = write_file(&n->token_fd, n->token_file, hex, sizeof(hex) - 1, err);
    explicit_bzero(hex, sizeof(hex));
    if (!rc)
        rc = layout_hostfile(slurm_io_getenv, sp, &hosts, err);
    if (!rc)
        rc = write_file(&n->hosts_fd, n->hostfile, strbuf_str(&hosts), hosts.n, err);
    return rc;
}

int node_side_offer_mounts(struct spank_handle *sp,
                           const struct plugin_config *cfg,
                           struct err *err)
{
    char mounts[sizeof(cfg->dir) + sizeof(cfg->run_dir) + 1];
    (void)snprintf(mounts, sizeof(mounts), "%s:%s", cfg->dir, cfg->run_dir);
    return slurm_io_setenv(sp, MOUNTS_ENV, mounts, err);
}

int node_side_check_visible(const struct node_side *n, struct err *err)
{
    if (access(n->token_file, R_OK) == 0)
        return 0;
    return err_errno(err, errno,
                     "cannot read %s in the task; a container must show this folder "
                     "(CONTAINERS in spank_hvd(8))",
                     n->token_file);
}

void node_side_release(struct node_side *n)
{
    token_wipe(&n->ticket.token);
    if (n->tasks)
        (void)munmap(n->tasks,
                     sizeof(*n->tasks) + n->tasks->n * sizeof(n->tasks->rank_1[0]));
    n->tasks = NULL;
    fd_close(&n->token_fd);
    fd_close(&n->hosts_fd);
    if (n->base_fd >= 0) {
        remove_dir(n->base_fd, n->name);
        pages_remove(n->name, n->uid);
    }
    fd_close(&n->base_fd);
}
