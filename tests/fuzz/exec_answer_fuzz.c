/* SPDX-License-Identifier: Apache-2.0 */
/* The output of a credential plug-in: an accepted one has a credential of one line. */
#include "operator/kube/exec_answer.h"
#include "tests/fuzz/fuzz.h"

FUZZ_TARGET(exec_answer)
{
    struct exec_answer a;
    struct err err = ERR_INIT;

    if (exec_answer_read((const char *)data, n, "client.authentication.k8s.io/v1", &a,
                         &err)
        == 0) {
        MUST(a.token || a.cert_pem);
        MUST(!a.cert_pem == !a.key_pem);
        MUST(!a.token || !strpbrk(a.token, "\r\n"));
        exec_answer_release(&a);
    } else {
        MUST(*err.text);
    }
    return 0;
}
