"""Rows of kernels that TileGym's package or FlashInfer has, beside those of `export.py`."""
from launches import A, F, I, L, Launch, MULTIPROCESSORS, Row, power, up


def attention():
    """Attention of packed sequences, and with functions of scores."""
    batch, heads, key_heads, length, dim = 8, 16, 8, 4096, 128
    q, y = (A(name, "bf16", (batch, heads, length, dim)) for name in ("q", "y"))
    k, v = (A(name, "bf16", (batch, key_heads, length, dim)) for name in "kv")
    lengths = A("lengths", "i32", (batch,))
    # Its own list of configurations.
    tiles = ((256, 128, 1), (128, 128, 2), (128, 64, 2), (64, 64, 4), (64, 128, 2), (256, 64, 1), (128, 128, 1))
    yield Row(f"packed attention causal bf16 {batch} {heads}+{key_heads} {length} {dim}", "ops/cutile/attention_varlen", {
        f"{tm} x {tn}, occupancy {occupancy}": [Launch("_fmha_varlen_kernel", (up(length, tm), batch * heads, 1), (
            q, k, v, lengths, lengths, y, F(dim ** -0.5), dim, heads, length, length, tm, tn, heads // key_heads, True, True, True),
            {"num_ctas": 1, "occupancy": occupancy})]
        for tm, tn, occupancy in tiles})
    batch, heads, length = 4, 32, 4096
    q, k, v, y = (A(name, "bf16", (batch, heads, length, dim)) for name in "qkvy")
    none = A("none", "i32", (1,))
    for name, causal, window, kind, bias in (("slopes causal", True, 0, 3, A("bias", "f32", (heads,))),
                                             ("bias window 512", False, 512, 1, A("bias", "f32", (batch, heads, 1, length)))):
        yield Row(f"attention {name} bf16 {batch} {heads} {length} {dim}", "ops/cutile/attention_variant", {
            f"{tm} x {tn}, occupancy {occupancy}": [Launch("_fmha_variant_kernel_bnsd", (up(length, tm), batch * heads, 1), (
                q, k, v, y, bias, none, none, none, F(dim ** -0.5), I(length), I(length), dim, dim, heads, tm, tn, 1, causal,
                True, True, False, False, window, kind, False), {"num_ctas": 1, "occupancy": occupancy})]
            for tm, tn, occupancy in ((256, 128, 1), (128, 128, 2), (128, 64, 2), (64, 128, 2), (64, 64, 4))})


def decode():
    """Decode steps with paged caches, and with sinks."""
    batch, heads, key_heads, length, dim, page = 32, 32, 8, 8192, 128, 64
    group, pages = heads // key_heads, up(8192, 64)
    q, y = (A(name, "bf16", (batch, heads, dim)) for name in ("q", "y"))
    k, v = (A(name, "bf16", (batch * pages, page, key_heads, dim)) for name in ("k", "v"))
    table, lengths = A("table", "i32", (batch * pages,)), A("lengths", "i32", (batch,))
    each = max(1 << (length // (MULTIPROCESSORS // batch) - 1).bit_length(), 128)
    configurations = {}
    # Its own choice for more than 132 heads of keys is no split; a split is tried, too.
    for splits in (1, up(length, each)):
        parts, logs = A("parts", "bf16", (splits, batch, heads, dim)), A("logs", "f32", (batch, heads, splits))
        for tn in (64, 128):
            for occupancy in (1, 2):
                for gathers in (True, False):
                    of_logs = logs if splits > 1 else A("logs", "f32", (1,))
                    result = parts if splits > 1 else A("y", "bf16", (1, batch, heads, dim))
                    launches = [Launch("_decode_attention_kv_paged_kernel", (batch, key_heads, splits), (
                        q, k, v, lengths, table, result, of_logs, dim ** -0.5, 1.0, key_heads, page, group, tn, dim, group, splits,
                        each if splits > 1 else -1, splits > 1, I(pages), 1, True, min(tn, page), max(tn // page, 1), gathers),
                        {"occupancy": occupancy})]
                    if splits > 1:
                        launches.append(Launch("_splitk_reduce_kernel_htile", (batch, heads // 4, 1), (
                            parts, logs, y, lengths, each, splits, power(splits), 4, dim)))
                    label = f"{tn} keys, {splits} parts, occupancy {occupancy}{', gather' if gathers else ''}"
                    configurations[label] = launches
    yield Row(f"paged decode bf16 {batch} {heads}+{key_heads} {length} {dim} {page}", "suites/flashinfer/cutile/fmha_decode_bsr", configurations)
    for batch, heads, key_heads, length, dim, window in ((8, 64, 8, 8192, 64, 0), (64, 64, 8, 8192, 64, 128)):
        group = heads // key_heads
        splits = max(MULTIPROCESSORS // (batch * key_heads), 1)
        each = max(128, power(up(length, splits)))
        splits = up(length, each)
        q, k, v = (A(name, "bf16", shape) for name, shape in (
            ("q", (batch, key_heads, group, dim)), ("k", (batch, key_heads, length, dim)), ("v", (batch, key_heads, length, dim))))
        parts = A("parts", "bf16", (batch, key_heads, group, splits, dim))
        logs = A("logs", "f32", (batch, key_heads, group, splits))
        size = max(8, power(group))
        arguments = (q, k, v, A("sinks", "f32", (heads,)), parts, logs, A("place", "i32", (1,)), F(dim ** -0.5), I(heads * splits * dim),
                     I(splits * dim), I(dim), I(heads * splits), I(splits), I(batch), I(heads), I(key_heads), I(length), each, dim, 128,
                     group, size, splits, window, True)
        second = Launch("_splitk_reduce_kernel", (batch, heads, 1), (
            A("parts", "bf16", (batch, heads, splits, dim)), A("logs", "f32", (batch, heads, splits)), A("y", "bf16", (batch, heads, dim)),
            batch, length, heads, dim, splits, power(splits), min(128, dim), power(splits) >= 16), module="ops/cutile/splitk_reduce")
        yield Row(f"sink decode bf16 {batch} {heads}+{key_heads} {length} {dim}{f' window {window}' if window else ''}",
                  "ops/cutile/attention_sink_decode", {
            f"occupancy {occupancy}": [Launch("_attention_sink_decode_kernel", (batch, key_heads, splits), arguments,
                                              {"occupancy": occupancy} if occupancy else {}), second]
            for occupancy in (None, 2, 4)})


def scaled():
    """Products of e4m3 with scales of blocks of 128."""
    for module, m, n, k in (("ops/cutile/fp8_quantization_matmul", 4096, 7168, 2048),
                            ("flashinfer/gemm/kernels/cutile/gemm_fp8_nt_groupwise_cutile", 4096, 4096, 7168),
                            ("ops/cutile/fp8_quantization_matmul", 64, 7168, 2048)):
        a, b, y = A("a", "e4m3", (m, k)), A("b", "e4m3", (n, k)), A("y", "bf16", (m, n))
        of_a, of_b = A("of_a", "f32", (m, up(k, 128))), A("of_b", "f32", (up(n, 128), up(k, 128)))
        configurations = {}
        for tm in (16, 32, 64, 128):
            for occupancy in (1, 2):
                for swapped in (1, 0):
                    for copies in ((0,) if module.startswith("flashinfer") else (1, 0)):
                        # By gathers, few tiles are of use.
                        if tm > m or (m > 128 and tm < 64) or (copies == 0 and not module.startswith("flashinfer")):
                            continue
                        arguments = (a, b, y, of_a, of_b, m, n, k, 128, 128, k, 1, 1, k, n, 1, up(k, 128), 1, 1, up(k, 128),
                                     tm, 128, 128, 16, 2, swapped)
                        arguments += () if module.startswith("flashinfer") else (copies,)
                        label = f"{tm} rows, occupancy {occupancy}{', swapped' if swapped else ''}{', TMA' if copies else ''}"
                        configurations[label] = [Launch("_w8a8_block_fp8_matmul_kernel", (up(m, tm) * up(n, 128), 1, 1), arguments,
                                                        {"num_ctas": 1, "occupancy": occupancy})]
        name = "FlashInfer's scaled product" if module.startswith("flashinfer") else "scaled product"
        yield Row(f"{name} e4m3 {m} {n} {k}", module, configurations)


def groups():
    """Products of groups of e4m3 rows with scales of blocks."""
    count, each, n, k = 32, 512, 4096, 2048
    m = count * each
    a, b, y = A("a", "e4m3", (m, k)), A("b", "e4m3", (count, n, k)), A("y", "bf16", (m, n))
    of_a, of_b = A("of_a", "f32", (m, up(k, 128))), A("of_b", "f32", (count, up(n, 128), up(k, 128)))
    starts, most = A("starts", "i32", (count + 1,)), A("most", "i32", (1,))
    configurations = {}
    for tm, tn, swapped in ((256, 128, 0), (128, 128, 0), (64, 128, 1), (32, 256, 1), (64, 256, 1)):
        for occupancy in (1, 2):
            ctas = 2 if tm == 256 else 1
            # The longest group has at most twice as many rows.
            programs = min(MULTIPROCESSORS // ctas, up(2 * each, tm) * up(n, tn) * count) * occupancy
            kernels = ("_ragged_block_scaled_bmm_swap_ab_kernel",) if swapped else (
                "_ragged_block_scaled_bmm_kernel", "_ragged_block_scaled_bmm_uniform_kernel")
            for kernel in kernels:
                label = f"{tm} x {tn}, occupancy {occupancy}{kernel.partition('bmm')[2].removesuffix('_kernel').replace('_', ' ')}"
                configurations[label] = [Launch(kernel, (programs, 1, 1), (
                    a, b, of_a, of_b, y, starts, I(count), I(2 * each), most, I(n), 1, tm, tn, 128, 4 if swapped else 8),
                    {"num_ctas": ctas, "occupancy": occupancy})]
    yield Row(f"scaled products of groups e4m3 {count} {m} {n} {k}", "suites/flashinfer/cutile/gemm/ragged_block_scaled_bmm", configurations)


def mamba():
    """Mamba-2, forward: three launches."""
    batch, tokens, heads, dim, states, steps = 2, 4096, 64, 64, 128, 64
    chunks = tokens // steps
    x, y = (A(name, "bf16", (batch, tokens, heads, dim)) for name in "xy")
    b, c = (A(name, "bf16", (batch, tokens, 1, states)) for name in "bc")
    dt, a, d = A("dt", "bf16", (batch, tokens, heads)), A("a", "f32", (heads,)), A("d", "f32", (heads,))
    by_token, by_head = A("by_token", "f32", (batch, tokens, heads)), A("by_head", "f32", (batch, heads, tokens))
    of_head = A("of_head", "bf16", (batch, heads, tokens))
    start, last = (A(name, "f32", (batch, heads, dim, states)) for name in ("start", "final"))
    inner = A("inner", "bf16", (batch, heads, chunks, dim, states))
    sums = Launch("chunk_cumsum_kernel", (chunks, heads // 8, batch), (a, dt, by_token, by_head, of_head, steps, 8), {"occupancy": 4})
    configurations = {}
    for swapped in (False, True):
        for part in (32, 64):
            state = Launch("fwd_pass_state_kernel", (1, states // part, batch * heads), (
                x, b, of_head, by_head, start, inner, inner, last, steps, part, dim, heads, 4, 2, 2, swapped, True, False),
                {"num_ctas": 1, "occupancy": 2})
            for width in (64, 128):
                for occupancy in (1, 2):
                    out = Launch("compute_out_swap_kernel", (occupancy * MULTIPROCESSORS, 1, 1), (
                        x, b, c, d, of_head, by_head, inner, y, steps, width, dim, heads, states, 4, 4, True), {"occupancy": occupancy})
                    label = f"{part} states{', swapped' if swapped else ''}; {width} states, occupancy {occupancy}"
                    configurations[label] = [sums, state, out]
    yield Row(f"mamba2 bf16 {batch} {tokens} {heads} {dim} {states}", "ops/cutile/mamba2", configurations)


def hyper():
    """Hyper-connections: weights of residual streams by a split product, and streams behind a layer."""
    tokens, n, columns = 4096, 4, 4096
    terms, count = n * columns, n * (n + 2)
    x, w, bias = A("x", "bf16", (tokens, terms)), A("w", "bf16", (terms, count)), A("bias", "f32", (count,))
    y, root = A("y", "f32", (tokens, count)), A("root", "f32", (tokens, 1))
    configurations = {}
    # Tiles of 128 x 128 take `tileiras` minutes.
    for tm, tk in ((64, 64), (64, 128), (128, 64)):
        for parts in (1, 2, 4, 8):
            sums, squares = A("sums", "f32", (tokens * parts, count)), A("squares", "f32", (tokens * parts, 1))
            configurations[f"{tm} x {tk}, {parts} parts"] = [
                Launch("_mhc_split_gemm_rms_kernel", (up(tokens, tm), parts, 1), (
                    x, w, sums, squares, I(tokens), I(count), I(terms), tm, 32, tk, parts, 8)),
                Launch("_mhc_finalize_scale_bias_sigmoid_kernel", (up(tokens, tm), 1, 1), (
                    sums, squares, y, root, I(n), F(0.7), F(0.8), F(0.9), bias, I(tokens), I(count), I(terms), tm, 32, parts))]
    module = "ops/cutile/experimental/mhc"
    yield Row(f"hyper-connection weights bf16 {tokens} {n} {columns}", module, configurations)
    x, y = (A(name, "bf16", (tokens, n, columns)) for name in "xy")
    arguments = (x, A("layer", "bf16", (tokens, columns)), A("post", "f32", (tokens, n)), A("mixed", "f32", (tokens, n, n)), y)
    yield Row(f"hyper-connection streams bf16 {tokens} {n} {columns}", module, {
        f"occupancy {occupancy}": [Launch("_mhc_apply_residual_kernel", (tokens, columns // 1024, 1), (*arguments, I(columns), n, 1024),
                                          {"occupancy": occupancy} if occupancy else {})]
        for occupancy in (None, 2, 4, 8)})


def experts():
    """Gradients of the gated activations of experts. Each expert has as many tokens."""
    tokens, taken, count, between, hidden = 4096, 8, 64, 1408, 2048
    pairs = tokens * taken
    dy, w, z = A("dy", "bf16", (tokens, hidden)), A("w", "bf16", (count, between, hidden)), A("z", "bf16", (pairs, 2 * between))
    lists = [A(name, "i32", (pairs,)) for name in ("tokens", "order")]
    results = A("dz", "bf16", (pairs, 2 * between)), A("h", "bf16", (pairs, between)), A("ds", "f32", (pairs,))
    arguments = (dy, lists[0], w, z, A("scores", "f32", (pairs,)), lists[1], A("starts", "i32", (count + 1,)), *results, hidden, between)
    yield Row(f"expert activation gradients bf16 {tokens} {taken} {count} {between} {hidden}", "ops/cutile/moe_actgrad_bwd", {
        f"{tm} x {tn} x {tk}, occupancy {occupancy}, {strips} strips": [Launch(
            "_moe_actgrad_bwd_kernel", (up(pairs // count, tm), up(between, tn), count), (*arguments, tm, tn, tk, 0, 1, strips),
            {"num_ctas": 1, "occupancy": occupancy})]
        for tm, tn, tk in ((128, 128, 64),) for occupancy in (1, 2) for strips in (1, tn // 32)})


def lists():
    """A product with the arrays of peers."""
    peers, m, n, k = 8, 1024, 4096, 4096
    x, w, y = L("words", peers, A("x", "bf16", (m, k))), A("w", "bf16", (k, n)), A("y", "bf16", (peers * m, n))
    yield Row(f"product of a list bf16 {peers} {m} {n} {k}", "samples/AllGatherMatmul", {
        f"{tm} x {tn} x {tk}, {hints}": [Launch("gather_matmul_kernel", (peers * m // tm, n // tn, 1), (x, w, y, tm, tn, tk), hints)]
        for tm, tn, tk in ((128, 128, 128), (128, 128, 64), (128, 256, 64), (256, 128, 64)) for hints in ({}, {"occupancy": 1}, {"occupancy": 2})})


def transforms():
    """Fourier transforms by three factors. A block has some rows."""
    for count, n, f in ((65536, 512, 8), (8192, 4096, 16)):
        w, t0, t1 = A("w", "f32", (f, f, 2)), A("t0", "f32", (f, f * f, 2)), A("t1", "f32", (f, f, 2))
        x, y = (A(name, "f32", (count, n * 2 // 64, 64)) for name in "xy")
        yield Row(f"fft c64 {count} {n}", "samples/FFT", {
            f"{rows} rows, {hints}": [Launch("fft_kernel", (count // rows, 1, 1), (x, y, w, w, w, t0, t1, n, f, f, f, rows, 64), hints)]
            for rows in ((1, 2, 4, 8) if n == 512 else (1, 2)) for hints in ({}, {"occupancy": 2}, {"occupancy": 4})})


def rows():
    yield from experts()
    yield from hyper()
    yield from lists()
    yield from attention()
    yield from decode()
    yield from scaled()
    yield from groups()
    yield from mamba()
    yield from transforms()
