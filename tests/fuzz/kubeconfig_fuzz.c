/* SPDX-License-Identifier: Apache-2.0 */
/* A kubeconfig: an accepted one has a server, keys in pairs, and no value of several
 * lines. */
#include "operator/kube/config.h"
#include "tests/fuzz/fuzz.h"

FUZZ_TARGET(kubeconfig)
{
    struct kube_config c;
    struct err err = ERR_INIT;

    if (kube_config_parse((const char *)data, n, "/nowhere", &c, &err) == 0) {
        MUST(c.server && strncmp(c.server, "http", 4) == 0);
        MUST(!c.cert_pem == !c.key_pem);
        MUST(!c.token || !strpbrk(c.token, "\r\n"));
        kube_config_release(&c);
    } else {
        MUST(*err.text);
    }
    return 0;
}
