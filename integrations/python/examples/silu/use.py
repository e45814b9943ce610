"""The function on NumPy arrays; with torch, gradients and torch.compile."""

import cutlet
import numpy as np
import silu as native


def backward(grad, y, x):
    s = x.sigmoid()
    return grad * (s + y * (1 - s))


silu = cutlet.op("silu", native.silu, namespace="mine", backward=backward)

x = np.random.default_rng(0).standard_normal((3, 50)).astype(np.float32)
np.testing.assert_allclose(silu(x), x / (1 + np.exp(-x)), atol=1e-6)
print(silu, "on NumPy: ok")

try:
    import torch
except ImportError:
    raise SystemExit

t = torch.from_numpy(x).to("cuda" if cutlet.num_gpus() else "cpu").requires_grad_()
torch.testing.assert_close(silu(t), torch.nn.functional.silu(t))
(ours,), (theirs,) = (torch.autograd.grad(f(t).sum(), (t,)) for f in (silu, torch.nn.functional.silu))
torch.testing.assert_close(ours, theirs)
print(torch.compile(lambda t: silu(t) + 1, backend="eager", fullgraph=True)(t).shape, "on torch: ok")
