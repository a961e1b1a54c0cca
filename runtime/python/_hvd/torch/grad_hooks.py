# SPDX-License-Identifier: Apache-2.0
"""Being told when a parameter's gradient is complete.

torch 2.1 and later have a public hook for it. Before that, the node that accumulates the gradient
is reached through a throw-away view of the parameter; the node lives only as long as somebody holds
it, so it is returned as part of the registration.
"""

import torch

HAS_PUBLIC_HOOK = hasattr(torch.Tensor, "register_post_accumulate_grad_hook")


def on_gradient(parameter, function, use_public_hook=HAS_PUBLIC_HOOK):
    """Calls function() each time backward() has added to parameter.grad.

    Returns (removable hook, object to keep alive).
    """
    if use_public_hook:
        return parameter.register_post_accumulate_grad_hook(lambda _: function()), None
    with torch.enable_grad():
        view = parameter.expand_as(parameter)
    accumulator = view.grad_fn.next_functions[0][0]
    return accumulator.register_hook(lambda *_: function()), accumulator
