"""Times of a decoder of the shape of Llama-3.2-1B in torch, with random weights: the peer of `models/examples/llama.rs`.

    python3 models/benches/llama_torch.py [--kind bf16,int4] [--batch 1,16,64] [--context 1024] [--prompt 4096] [--mode MODE]

MODE is a mode of torch.compile: reduce-overhead (default) or max-autotune. Both record CUDA graphs. Rows have the form of those
of the example. Keys and values of a step are contiguous, and attention reads them without a mask: torch's fastest form.
"""

import argparse
import time

import torch
import torch.nn.functional as F

LAYERS, HIDDEN, HEADS, KEY_HEADS, DIM, INNER, VOCABULARY = 16, 2048, 32, 8, 64, 8192, 128256
GROUP = 128
SHAPES = {
    "qkv": (HEADS * DIM + 2 * KEY_HEADS * DIM, HIDDEN),
    "out": (HIDDEN, HEADS * DIM),
    "gated": (2 * INNER, HIDDEN),
    "down": (HIDDEN, INNER),
}


class Linear(torch.nn.Module):
    """Weights of bf16, or of 4 bits in the layout of torch's kernel."""

    def __init__(self, shape, kind):
        super().__init__()
        outputs, inputs = shape
        self.outputs, self.kind = outputs, kind
        if kind == "bf16":
            weight = torch.randn(outputs, inputs, device="cuda", dtype=torch.bfloat16) * inputs**-0.5
            self.register_buffer("weight", weight)
        else:
            codes = torch.randint(0, 256, (outputs, inputs // 2), device="cuda", dtype=torch.uint8)
            self.register_buffer("weight", torch.ops.aten._convert_weight_to_int4pack(codes, 8))
            scales = torch.rand(inputs // GROUP, outputs, 2, device="cuda", dtype=torch.bfloat16)
            self.register_buffer("scales", scales * inputs**-0.5 * 0.2)

    def forward(self, x):
        if self.kind == "bf16":
            return F.linear(x, self.weight)
        rows = x.reshape(-1, x.shape[-1])
        y = torch.ops.aten._weight_int4pack_mm(rows, self.weight, GROUP, self.scales)
        return y.reshape(*x.shape[:-1], self.outputs)


def norm(x, weight):
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-5)).to(x.dtype) * weight


def rotate(x, cos, sin):
    a, b = x.float().chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(x.dtype)


class Llama(torch.nn.Module):
    def __init__(self, kind, positions):
        super().__init__()
        self.words = torch.nn.Buffer(torch.randn(VOCABULARY, HIDDEN, device="cuda", dtype=torch.bfloat16))
        self.layers = torch.nn.ModuleList(
            torch.nn.ModuleDict({name: Linear(shape, kind) for name, shape in SHAPES.items()}) for _ in range(LAYERS)
        )
        self.head = None if kind == "bf16" else Linear((VOCABULARY, HIDDEN), kind)
        self.norms = torch.nn.Buffer(torch.randn(2 * LAYERS + 1, HIDDEN, device="cuda", dtype=torch.bfloat16))
        angles = torch.outer(torch.arange(positions), 500000.0 ** -(torch.arange(0, DIM, 2) / DIM)).cuda()
        self.cos, self.sin = torch.nn.Buffer(angles.cos()), torch.nn.Buffer(angles.sin())

    def logits(self, x):
        x = norm(x, self.norms[-1])
        return F.linear(x, self.words) if self.head is None else self.head(x)

    def qkv(self, index, layer, x, positions):
        batch, tokens, _ = x.shape
        heads = layer["qkv"](norm(x, self.norms[2 * index])).view(batch, tokens, -1, DIM).transpose(1, 2)
        q, k, v = heads.split([HEADS, KEY_HEADS, KEY_HEADS], 1)
        cos, sin = self.cos[positions], self.sin[positions]
        return rotate(q, cos, sin), rotate(k, cos, sin), v

    def rest(self, index, layer, x, attended):
        batch, _, tokens, _ = attended.shape
        x = x + layer["out"](attended.transpose(1, 2).reshape(batch, tokens, HIDDEN))
        gate, factor = layer["gated"](norm(x, self.norms[2 * index + 1])).chunk(2, -1)
        return x + layer["down"](F.silu(gate) * factor)

    def prefill(self, tokens, keys, values):
        x, positions = self.words[tokens], torch.arange(tokens.shape[1], device="cuda")
        for index, layer in enumerate(self.layers):
            q, k, v = self.qkv(index, layer, x, positions)
            keys[index][:, :, : tokens.shape[1]] = k
            values[index][:, :, : tokens.shape[1]] = v
            x = self.rest(index, layer, x, F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True))
        return self.logits(x[:, -1]).argmax(-1)

    def step(self, tokens, position, keys, values):
        x = self.words[tokens]
        for index, layer in enumerate(self.layers):
            q, k, v = self.qkv(index, layer, x, position)
            keys[index].index_copy_(2, position, k)
            values[index].index_copy_(2, position, v)
            x = self.rest(index, layer, x, F.scaled_dot_product_attention(q, keys[index], values[index], enable_gqa=True))
        return self.logits(x[:, -1]).argmax(-1, keepdim=True)


def cache(batch, tokens):
    """Returns arrays of keys or values. CUDA graphs need static addresses of what they write."""
    arrays = [torch.randn(batch, KEY_HEADS, tokens, DIM, device="cuda", dtype=torch.bfloat16) for _ in range(LAYERS)]
    for array in arrays:
        torch._dynamo.mark_static_address(array)
    return arrays


def measure(call, runs):
    """Returns the seconds of a call, of calls that follow one another."""
    for _ in range(4):
        call()
    best = float("inf")
    for _ in range(5):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        begin.record()
        for _ in range(runs):
            call()
        end.record()
        torch.cuda.synchronize()
        best = min(best, begin.elapsed_time(end) / runs / 1e3)
    return best


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", default="bf16,int4")
    parser.add_argument("--batch", default="1,16,64")
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--prompt", type=int, default=4096)
    parser.add_argument("--mode", default="reduce-overhead")
    options = parser.parse_args()
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = True
    for kind in options.kind.split(","):
        model = Llama(kind, max(options.prompt, options.context) + 1)
        with torch.no_grad():
            if options.prompt:
                start = time.time()
                keys, values = cache(1, options.prompt), cache(1, options.prompt)
                tokens = torch.randint(0, VOCABULARY, (1, options.prompt), device="cuda")
                torch._dynamo.reset()
                prefill = torch.compile(model.prefill, mode=options.mode, dynamic=False)
                seconds = measure(lambda: prefill(tokens, keys, values), 4)
                rate = options.prompt / seconds
                note = f"torch {options.mode}, compiled in {time.time() - start:.0f} s"
                print(f"llama prefill {kind} {options.prompt}\t{seconds * 1e6:.1f} us\t{rate:.0f} tokens/s\t{note}", flush=True)
                del keys, values
            for batch in map(int, filter(None, options.batch.split(","))):
                start = time.time()
                keys, values = cache(batch, options.context), cache(batch, options.context)
                tokens = torch.randint(0, VOCABULARY, (batch, 1), device="cuda")
                position = torch.tensor([options.context - 1], device="cuda")
                torch._dynamo.reset()
                step = torch.compile(model.step, mode=options.mode, dynamic=False)

                def call():
                    torch.compiler.cudagraph_mark_step_begin()
                    tokens.copy_(step(tokens, position, keys, values))

                seconds = measure(call, 16)
                note = f"torch {options.mode}, compiled in {time.time() - start:.0f} s"
                row = f"llama decode {kind} {batch} x {options.context}"
                print(f"{row}\t{seconds * 1e6:.1f} us\t{batch / seconds:.0f} tokens/s\t{note}", flush=True)
                del keys, values
        del model
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
