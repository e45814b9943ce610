"""The package on NumPy arrays, on the host."""

import numpy as np
import pytest

import cutlet


def random(*shape, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def tolerance(dtype):
    return 1e-5 if dtype == np.float32 else 4e-3


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_softmax_takes_any_strides(dtype):
    x = random(4, 6, 50, dtype=dtype)
    for view in [x, x.transpose(1, 0, 2), x[:, 1:4], x[..., ::2], x[0, 0], x.transpose(2, 0, 1), x[:0]]:
        y = cutlet.softmax(view)
        assert y.shape == view.shape and y.dtype == dtype
        np.testing.assert_allclose(y, softmax(view.astype(np.float32)), atol=tolerance(dtype))


def test_read_only_arrays_are_read():
    x = random(3, 20)
    x.flags.writeable = False
    np.testing.assert_allclose(cutlet.softmax(x), softmax(x), atol=1e-6)
    with pytest.raises(ValueError, match="negative stride"):
        cutlet.softmax(random(3, 20)[:, ::-1])


def test_no_element_is_copied():
    from cutlet import _native

    x, y = random(3, 20), np.zeros((3, 20), np.float32)
    _native.softmax(x.__dlpack__(), y.__dlpack__())
    np.testing.assert_allclose(y, softmax(x), atol=1e-6)


@pytest.mark.parametrize("columns", [1, 77, 20000])
def test_norms(columns):
    x, weight, bias = random(2, 3, columns), random(columns, seed=1), random(columns, seed=2)
    wanted = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * weight
    np.testing.assert_allclose(cutlet.rms_norm(x, weight), wanted, atol=2e-5)
    centered = x - x.mean(-1, keepdims=True)
    wanted = centered / np.sqrt((centered * centered).mean(-1, keepdims=True) + 1e-3) * weight + bias
    np.testing.assert_allclose(cutlet.layer_norm(x, weight, bias, epsilon=1e-3), wanted, atol=2e-5)


@pytest.mark.parametrize("adjacent", [False, True])
def test_rotary(adjacent):
    x = random(2, 37, 3, 24).transpose(0, 2, 1, 3)
    angle = np.arange(37)[:, None] / 10.0 ** (np.arange(12) / 6)
    cos, sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
    first, second = (x[..., ::2], x[..., 1::2]) if adjacent else (x[..., :12], x[..., 12:])
    low, high = first * cos - second * sin, second * cos + first * sin
    wanted = np.stack([low, high], -1).reshape(x.shape) if adjacent else np.concatenate([low, high], -1)
    np.testing.assert_allclose(cutlet.rotary(x, cos, sin, adjacent), wanted, atol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
def test_attention(causal):
    q, k, v = random(2, 4, 9, 20), random(2, 2, 13, 20, seed=1), random(2, 2, 13, 20, seed=2)
    scores = q @ k.repeat(2, 1).swapaxes(2, 3) * 0.25
    if causal:
        scores = np.where(np.tri(9, 13, 4, dtype=bool), scores, -np.inf)
    np.testing.assert_allclose(cutlet.attention(q, k, v, 0.25, causal), softmax(scores) @ v.repeat(2, 1), atol=1e-5)


def numeric(function, x, grad, step=1e-3):
    """The gradient of sum(grad * function(x)) for x, in f64."""
    result = np.zeros(x.shape)
    for at in np.ndindex(*x.shape):
        move = np.zeros(x.shape)
        move[at] = step
        result[at] = ((function(x + move) - function(x - move)) * grad).sum() / (2 * step)
    return result


def split(gradients, *tensors):
    parts = np.split(gradients, np.cumsum([x.size for x in tensors])[:-1])
    return [part.reshape(x.shape) for part, x in zip(parts, tensors)]


def test_gradients_of_rows():
    from cutlet import _ready

    x, grad, weight = (random(*shape, seed=seed) for shape, seed in [((2, 3, 7), 0), ((2, 3, 7), 1), ((7,), 2)])
    wide = x.astype(np.float64)
    found = _ready._softmax_gradient(softmax(x), grad)
    np.testing.assert_allclose(found, numeric(softmax, wide, grad), atol=1e-5)

    def rms(x, weight):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-2) * weight

    def layer(x, weight):
        return rms(x - x.mean(-1, keepdims=True), weight)

    for norm, gradients, vectors in [(rms, _ready._rms_norm_gradients, 1), (layer, _ready._layer_norm_gradients, 2)]:
        found = split(gradients(x.transpose(1, 0, 2), grad.transpose(1, 0, 2).copy(), weight, 1e-2), x, *[weight] * vectors)
        of_x = numeric(lambda x: norm(x, weight), wide, grad).transpose(1, 0, 2)
        np.testing.assert_allclose(found[0].reshape(3, 2, 7), of_x, atol=1e-4)
        of_weight = numeric(lambda weight: norm(wide, weight), weight.astype(np.float64), grad)
        np.testing.assert_allclose(found[1], of_weight, atol=1e-4)
    np.testing.assert_allclose(found[2], grad.sum((0, 1)), atol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
def test_gradients_of_attention(causal):
    from cutlet import _ready

    shapes = [(1, 4, 3, 8), (1, 2, 5, 8), (1, 2, 5, 8), (1, 4, 3, 8)]
    q, k, v, grad = (random(*shape, seed=seed) for seed, shape in enumerate(shapes))

    def attention(q, k, v):
        scores = q @ k.repeat(2, 1).swapaxes(2, 3) * 0.25
        if causal:
            scores = np.where(np.tri(3, 5, 2, dtype=bool), scores, -np.inf)
        return softmax(scores) @ v.repeat(2, 1)

    wide = [x.astype(np.float64) for x in (q, k, v)]
    found = split(_ready._attention_gradients(q, k, v, grad, 0.25, causal), q, k, v)
    for i, gradient in enumerate(found):
        wanted = numeric(lambda x: attention(*wide[:i], x, *wide[i + 1 :]), wide[i], grad)
        np.testing.assert_allclose(gradient, wanted, atol=1e-4)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("rows", [3, 40])
def test_quantized_products(bits, rows):
    weight, x = random(70, 100), random(2, rows, 100, seed=1)
    quantized = cutlet.quantize(weight, bits, 32)
    assert np.abs(quantized.dequantize() - weight).max() < (0.4 if bits == 4 else 0.03)
    np.testing.assert_allclose(quantized(x), x @ quantized.dequantize().T, atol=1e-4)


@pytest.mark.parametrize("bits", [4, 8])
def test_few_rows_are_multiplied_in_parts(bits):
    from cutlet import _native

    weight, x = random(40, 1500), random(2, 1500, seed=1)
    quantized = cutlet.quantize(weight, bits, 64)
    # Sums of parts of the inputs, in memory of the caller.
    assert _native.quantized_scratch([2, 40, 1500], (bits, 64), 4, None) == 2 * 2 * 40
    np.testing.assert_allclose(quantized(x), x @ quantized.dequantize().T, atol=1e-3)


def blocks_of_q8_0(outputs, inputs):
    """Random bytes, and the weights that they are."""
    random = np.random.default_rng(3)
    scales = random.uniform(0.01, 0.02, (outputs, inputs // 32, 1)).astype(np.float16)
    codes = random.integers(-127, 128, (outputs, inputs // 32, 32), dtype=np.int8)
    bytes = np.concatenate([scales.view(np.uint8), codes.view(np.uint8)], -1).reshape(outputs, -1)
    return bytes, (scales.astype(np.float32) * codes).reshape(outputs, inputs)


def test_weights_of_gguf_files():
    (weight, wanted), x = blocks_of_q8_0(70, 96), random(2, 5, 96)
    np.testing.assert_allclose(cutlet.gguf_matmul(x, weight, "q8_0"), x @ wanted.T, atol=1e-4)
    with pytest.raises(ValueError, match="q8_0 and q4_K are possible"):
        cutlet.gguf_matmul(x, weight, "q2_K")
    with pytest.raises(ValueError, match="bytes in blocks q4_K"):
        cutlet.gguf_matmul(x, weight, "q4_K")


def test_errors_say_what_is_wrong():
    with pytest.raises(TypeError, match="a tensor of f64: f32, f16 and bf16 are possible"):
        cutlet.softmax(random(3, 4, dtype=np.float64))
    with pytest.raises(ValueError, match=r"a weight of shape \[5\] for rows of a tensor of \[3, 4\]"):
        cutlet.rms_norm(random(3, 4), random(5))
    with pytest.raises(TypeError, match="f16 where f32 is needed"):
        cutlet.rms_norm(random(3, 4), random(4, dtype=np.float16))
    with pytest.raises(TypeError, match="a list is no tensor of torch, CuPy, JAX or NumPy"):
        cutlet.softmax([1.0])
    with pytest.raises(TypeError, match="needs the argument 'scale'"):
        cutlet.attention(*[random(1, 1, 2, 8)] * 3)
    with pytest.raises(TypeError, match="has no argument 'eps'"):
        cutlet.rms_norm(random(3, 4), random(4), eps=1.0)
    with pytest.raises(ValueError, match="key heads divide heads"):
        cutlet.attention(random(1, 3, 2, 8), *[random(1, 2, 2, 8)] * 2, 1.0)


def test_operators_have_the_schemas_of_torch():
    assert cutlet.rms_norm.schema() == "(Tensor x, Tensor weight, float epsilon=1e-06) -> Tensor"
    assert "Softmax over the last axis" in cutlet.softmax.__doc__
    assert cutlet.attention.schema() == "(Tensor q, Tensor k, Tensor v, float scale, bool causal=False) -> Tensor"


def test_buffers_are_exported_once():
    from cutlet import _native

    x = random(3, 20)
    buffer = _native.Buffer([3, 20], 2, 32)
    _native.softmax(x.__dlpack__(), buffer.target())
    np.testing.assert_allclose(np.from_dlpack(buffer), softmax(x), atol=1e-6)
    with pytest.raises(BufferError):
        np.from_dlpack(buffer)
    assert isinstance(cutlet.num_gpus(), int)
