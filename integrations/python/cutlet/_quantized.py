"""Weights of 4 or 8 bits with a scale for each group of inputs."""

from ._frameworks import _KNOWN, framework_of
from ._op import op
from . import _native


def _is_torch(x):
    return framework_of(x) is _KNOWN["torch"]


dequantize = op(
    "dequantize",
    _native.dequantize,
    tensors=("scales", "codes"),
    numbers={"bits": int, "group": int},
    shape=lambda scales, codes, bits, group: (codes.shape[0], scales.shape[1]),
    doc="The weights of shape (inputs, outputs) for codes and scales.",
)


class QuantizedWeight:
    """A weight of shape (outputs, inputs) with codes of 4 or 8 bits: ``weight(x)`` is x times its transpose."""

    def __init__(self, codes, scales, outputs, bits, group):
        self.codes, self.scales, self.outputs, self.bits, self.group = codes, scales, outputs, bits, group

    def __call__(self, x):
        from ._ready import quantized_matmul

        return quantized_matmul(x, self.codes, self.scales, self.outputs, self.bits, self.group)

    def dequantize(self):
        """The weight of shape (outputs, inputs), as it is multiplied with."""
        return dequantize(self.scales, self.codes, self.bits, self.group).T


def quantize(weight, bits=4, group=32):
    """Rounds a weight of torch or NumPy of shape (outputs, inputs): ``group`` inputs of an output share a scale.

    The scales have the type of the weight, which is that of the activations, and are on its device.
    """
    import numpy

    outputs, inputs = weight.shape
    host = weight.detach().float().cpu().numpy() if _is_torch(weight) else weight.astype(numpy.float32)
    if not numpy.isfinite(host).all():
        raise ValueError("quantize: a weight that is not finite")
    if group < 16 or group & group - 1:
        raise ValueError(f"quantize: groups of {group} inputs: a power of two from 16 on")
    largest, groups = (1 << bits - 1) - 1, -(-inputs // group)
    padded = numpy.zeros((groups * group, outputs), numpy.float32)
    padded[:inputs] = host.T
    scales = numpy.abs(padded.reshape(groups, group, outputs)).max(1) / largest
    if _is_torch(weight):
        import torch

        own = torch.from_numpy(scales).to(weight.dtype)
        rounded = own.float().numpy()
    else:
        own = scales.astype(weight.dtype)
        rounded = own.astype(numpy.float32)
    steps = numpy.repeat(rounded, group, 0)[:inputs]
    codes = numpy.divide(padded[:inputs], steps, out=numpy.zeros((inputs, outputs), numpy.float32), where=steps != 0)
    codes = numpy.clip(numpy.rint(codes), -largest, largest).astype(numpy.int32).astype(numpy.uint32)
    per_word = 32 // bits
    fields = numpy.zeros((inputs, _native.quantized_words(outputs, bits) * per_word), numpy.uint32)
    fields[:, :outputs] = codes & (1 << bits) - 1
    shifts = numpy.arange(per_word, dtype=numpy.uint32) * bits
    words = numpy.bitwise_or.reduce(fields.reshape(inputs, -1, per_word) << shifts, 2).astype(numpy.uint32)
    if _is_torch(weight):
        words = torch.from_numpy(words.view(numpy.int32)).to(weight.device)
        own = own.to(weight.device)
    return QuantizedWeight(words, own, outputs, bits, group)
