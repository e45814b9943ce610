"""The package on tensors of torch: on the host, and on a GPU if there is one. Skipped without torch."""

import numpy as np
import pytest

import cutlet

torch = pytest.importorskip("torch")

DEVICES = ["cpu"] + (["cuda"] if torch.cuda.is_available() and cutlet.num_gpus() else [])
F = torch.nn.functional


def random(*shape, device="cpu", dtype=torch.float32, grad=False):
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator).to(device, dtype).requires_grad_(grad)


def cases(device):
    """Each function with its arguments and the same function of torch."""
    x, weight, bias = (random(*shape, device=device, grad=True) for shape in [(3, 5, 77), (77,), (77,)])
    yield "softmax", cutlet.softmax, (x,), lambda x: x.softmax(-1)
    yield "rms_norm", cutlet.rms_norm, (x, weight), lambda x, w: F.rms_norm(x, (77,), w, 1e-6)
    yield "layer_norm", cutlet.layer_norm, (x, weight, bias), lambda x, w, b: F.layer_norm(x, (77,), w, b)
    q, k, v = (random(*shape, device=device, grad=True) for shape in [(2, 4, 9, 24), (2, 2, 13, 24), (2, 2, 13, 24)])

    def attended(q, k, v):
        mask = torch.ones(9, 13, dtype=torch.bool, device=q.device).tril(4)
        k, v = k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=0.25)

    yield "attention", lambda q, k, v: cutlet.attention(q, k, v, 0.25, True), (q, k, v), attended
    angle = torch.arange(9.0, device=device)[:, None] * torch.arange(12.0, device=device) / 7

    def rotated(q):
        low, high = q.chunk(2, -1)
        return torch.cat([low * angle.cos() - high * angle.sin(), high * angle.cos() + low * angle.sin()], -1)

    yield "rotary", lambda q: cutlet.rotary(q, angle.cos(), angle.sin()), (q,), rotated
    quantized = cutlet.quantize(random(70, 77, device=device), 4, 32)
    from test_numpy import blocks_of_q8_0

    packed, weight = (torch.from_numpy(array).to(device) for array in blocks_of_q8_0(70, 96))
    wide = random(3, 5, 96, device=device, grad=True)
    yield "gguf_matmul", lambda x: cutlet.gguf_matmul(x, packed, "q8_0"), (wide,), lambda x: x @ weight.T
    yield "quantized_matmul", quantized, (x,), lambda x: x @ quantized.dequantize().T


@pytest.mark.parametrize("device", DEVICES)
def test_results_and_gradients(device):
    for name, ours, args, theirs in cases(device):
        y, wanted = ours(*args), theirs(*args)
        torch.testing.assert_close(y, wanted, atol=1e-4, rtol=1e-4, msg=lambda text: f"{name}: {text}")
        weights = torch.linspace(-1, 1, y.numel(), device=device).reshape(y.shape)
        grads = torch.autograd.grad((y * weights).sum(), args)
        expected = torch.autograd.grad((wanted * weights).sum(), args)
        for got, want in zip(grads, expected):
            torch.testing.assert_close(got, want, atol=1e-3, rtol=1e-3, msg=lambda text: f"{name}: {text}")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_short_types_and_strides(device, dtype):
    x = random(4, 6, 50, device=device, dtype=dtype)
    for view in [x, x.transpose(0, 1), x[:, 1:4], x[..., ::2]]:
        torch.testing.assert_close(cutlet.softmax(view), view.float().softmax(-1).to(dtype), atol=1e-2, rtol=1e-2)


@pytest.mark.parametrize("device", DEVICES)
def test_operators_are_checked_by_torch(device):
    x, weight = random(3, 20, device=device, grad=True), random(20, device=device, grad=True)
    cutlet.softmax(x), cutlet.rms_norm(x, weight)
    torch.library.opcheck(torch.ops.cutlet.softmax.default, (x,))
    torch.library.opcheck(torch.ops.cutlet.rms_norm.default, (x, weight, 1e-6))


@pytest.mark.parametrize("device", DEVICES)
def test_compile_keeps_the_operators(device):
    x, weight = random(3, 20, device=device), random(20, device=device)

    def model(x, weight):
        return cutlet.softmax(cutlet.rms_norm(x * 2, weight) + 1) * 3

    expected = model(x, weight)
    kept = []

    def backend(graph, inputs):
        kept.extend(str(node.target) for node in graph.graph.nodes if node.op == "call_function")
        return graph.forward

    compiled = torch.compile(model, backend=backend, fullgraph=True)
    torch.testing.assert_close(compiled(x, weight), expected)
    assert any("cutlet.softmax" in name for name in kept), kept
    if device == "cuda":
        torch.testing.assert_close(torch.compile(model, fullgraph=True)(x, weight), expected)


def test_compile_of_the_first_call():
    from cutlet import _native

    # The operator is registered while torch traces the call.
    fresh, x = cutlet.op("first_call", _native.softmax, namespace="cutlet_tests"), random(3, 20)
    compiled = torch.compile(lambda x: fresh(x * 2) + 1, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), (x * 2).softmax(-1) + 1)


@pytest.mark.skipif("cuda" not in DEVICES, reason="needs a GPU")
def test_work_is_on_the_current_stream():
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        x = random(512, 1024, device="cuda")
        for _ in range(20):
            torch.cuda._sleep(1_000_000)
            x = cutlet.softmax(x + 1)
            x = x * 2
        stream.synchronize()
        wanted = random(512, 1024, device="cuda")
        for _ in range(20):
            wanted = (wanted + 1).softmax(-1) * 2
        torch.testing.assert_close(x, wanted)


@pytest.mark.skipif("cuda" not in DEVICES, reason="needs a GPU")
def test_launches_in_graphs_of_cuda():
    x = random(64, 128, device="cuda")
    cutlet.softmax(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = cutlet.softmax(x)
    x.copy_(random(64, 128, device="cuda") * 3)
    graph.replay()
    torch.testing.assert_close(y, x.softmax(-1))


@pytest.mark.skipif("cuda" not in DEVICES, reason="needs a GPU")
def test_all_functions_in_graphs_of_cuda():
    for name, ours, args, _ in cases("cuda"):
        args = tuple(x.detach() for x in args)
        captured(name, ours, args)
    # So few rows that the sums of the product have parts, in scratch memory.
    quantized = cutlet.quantize(random(64, 4096, device="cuda"), 4, 32)
    captured("parts", quantized, (random(2, 4096, device="cuda"),))


def captured(name, ours, args):
    """Captures a call in a graph, and replays it with other arguments."""
    ours(*args)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = ours(*args)
    for x in args:
        x.mul_(0.5)
    wanted = ours(*args)
    graph.replay()
    torch.testing.assert_close(y, wanted, msg=lambda text: f"{name}: {text}")


@pytest.mark.skipif("torch.cuda.device_count() < 2", reason="needs two GPUs")
def test_the_current_device_stays():
    x = random(5, 30).to("cuda:1")
    torch.cuda.set_device(0)
    torch.testing.assert_close(cutlet.softmax(x), x.softmax(-1))
    assert torch.empty(1, device="cuda").device.index == 0


def test_other_libraries_give_the_same():
    host = random(5, 30).numpy()
    wanted = torch.from_numpy(host).softmax(-1).numpy()
    jax = pytest.importorskip("jax")
    np.testing.assert_allclose(np.asarray(cutlet.softmax(jax.numpy.asarray(host))), wanted, atol=1e-5)
    quantized, x = cutlet.quantize(random(40, 1500).numpy(), 4, 64), random(2, 1500).numpy()
    operands = (jax.numpy.asarray(array) for array in (x, quantized.codes, quantized.scales))
    np.testing.assert_allclose(np.asarray(cutlet.quantized_matmul(*operands, 40, 4, 64)), quantized(x), atol=1e-3)


def test_cupy():
    cupy = pytest.importorskip("cupy")
    if "cuda" not in DEVICES:
        pytest.skip("needs a GPU")
    host = random(5, 30)
    with cupy.cuda.Stream():
        y = cutlet.softmax(cupy.asarray(host.numpy()))
        np.testing.assert_allclose(cupy.asnumpy(y), host.softmax(-1).numpy(), atol=1e-5)
