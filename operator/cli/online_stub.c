#include "operator/cli/cli.h"
#define S(n)                                                                           \
    int n(struct cli *c)                                                               \
    {                                                                                  \
        (void)c;                                                                       \
        return cli_fail("not yet");                                                    \
    }
S(online_list)
S(online_status) S(online_explain) S(online_hosts) S(online_events) S(online_top)
    S(online_stacks) S(online_logs) S(online_timeline) S(online_scale) S(online_suspend)
        S(online_resume) S(online_restart) S(online_complete)
