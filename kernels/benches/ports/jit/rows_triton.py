"""Launches of the originals: kernels, grids and arguments of their host code."""
from compile_triton import Clear, P, Row, Stage


def up(a, b):
    return -(-a // b)


def rows():
    yield from recurrent()
    yield from order()
    yield from linalg()


def recurrent():
    """Rows of flash-linear-attention."""
    # Inverses of 1 + A: one head, so that matrices are contiguous.
    count, steps = 8192, 64
    none = {"cu_seqlens": None, "chunk_indices": None}
    solve = Stage("fla.ops.utils.solve_tril", "merge_16x16_to_64x64_inverse_kernel", lambda _: (count, 1),
                  {"A": P("a", "f32"), "Ai": P("y", "f32"), **none, "T": count * steps, "H": 1, "BT": steps, "USE_TMA": False})
    yield Row(f"inverse of unit lower f32 {count} {steps}", [Clear("y", count * steps * steps), solve],
              [("fla.ops.utils.solve_tril", name) for name in ("solve_tril_16x16_kernel", "merge_16x16_to_32x32_inverse_kernel")])

    batch, tokens, heads, dim, steps, part = 2, 4096, 32, 128, 64, 16
    chunks, scale = up(tokens, steps), dim**-0.5
    array = {name: P(name, "bf16") for name in ("q", "k", "v", "w", "u", "kg", "h", "scores", "inverse", "new", "y")}
    array |= {name: P(name, "f32") for name in ("gates", "sums", "diagonal", "beta")}
    of = lambda **names: {**{to: array[name] for to, name in names.items()}, **none, "T": tokens, "H": heads, "HV": heads, "K": dim, "BT": steps}
    state = Stage("fla.ops.common.chunk_delta_h", "chunk_gated_delta_rule_fwd_kernel_h_blockdim64",
                  lambda given: (up(dim, given["BV"]) * batch * heads,),
                  of(k="kg", v="u", w="w", v_new="new", gk="sums", h="h") | {"g": None, "h0": None, "ht": None, "chunk_offsets": None,
                                                                            "V": dim, "STATE_V_FIRST": False})
    stages = [
        Stage("fla.ops.utils.cumsum", "chunk_local_cumsum_vector_kernel", lambda given: (up(dim, given["BS"]), chunks, batch * heads),
              of(s="gates", o="sums") | {"scale": 1.4426950216, "B": batch, "S": dim, "REVERSE": False}),
        Clear("inverse", batch * tokens * heads * steps // 2),
        Stage("fla.ops.kda.chunk_intra_token_parallel", "chunk_kda_fwd_kernel_intra_token_parallel",
              lambda given: (batch * tokens, up(heads, given["BH"])),
              of(q="q", k="k", g="sums", beta="beta", Aqk="scores", Akk="diagonal") | {"scale": scale, "N": batch, "BK": dim, "BC": part}),
        Stage("fla.ops.kda.chunk_intra", "chunk_kda_fwd_kernel_inter_solve_fused", lambda _: (chunks, batch * heads),
              of(q="q", k="k", g="sums", beta="beta", Aqk="scores", Akkd="diagonal", Akk="inverse")
              | {"scale": scale, "BC": part, "NC": steps // part, "USE_SAFE_GATE": False}),
        Stage("fla.ops.kda.wy_fast", "recompute_w_u_fwd_kda_kernel", lambda _: (chunks, batch * heads),
              of(k="k", kg="kg", v="v", beta="beta", w="w", u="u", A="inverse", gk="sums") | {"q": None, "qg": None, "V": dim, "BK": 64, "BV": 64}),
        state,
        Stage("fla.ops.gla.chunk", "chunk_gla_fwd_kernel_o", lambda given: (up(dim, given["BV"]), chunks, batch * heads),
              of(q="q", v="new", g="sums", h="h", o="y", A="scores") | {"scale": scale, "V": dim, "STATE_V_FIRST": False}),
    ]
    yield Row(f"kimi delta chunks bf16 {batch} {tokens} {heads} {dim}", stages)

    # Results of the original are those of parts of the keys, which torch adds.
    batch, tokens, heads, dim, values, steps = 2, 4096, 32, 128, 64, 64
    chunks = up(tokens, steps)
    levels = tokens.bit_length()
    of = {"cu_seqlens": None, "T": tokens, "H": heads, "BT": steps}
    sums = Stage("fla.ops.utils.cumsum", "chunk_local_cumsum_scalar_kernel", lambda _: (chunks, batch * heads),
                 {"s": P("gates", "f32"), "o": P("sums", "f32"), "scale": None, "chunk_indices": None, **of, "B": batch, "REVERSE": False})
    attend = Stage("fla.ops.log_linear_attn.chunk", "chunkwise_fwd_kernel", lambda given: (up(dim, given["BK"]), batch * heads), {
        **{name: P(name, "bf16") for name in ("q", "k", "v")}, "g": P("sums", "f32"), "level_scales": P("factors", "bf16"),
        "llut": P("table", "i32"), "o": P("parts", "bf16"), "h0": None, "ht": None, "offsets": None, "new_offsets": P("ends", "i32"), **of,
        "K": dim, "V": values, "L": levels, "L_IN": None, "L_OUT": None, "MIN_LEVEL": 0, "MAX_LEVEL": (chunks - 1).bit_length() - 1})
    yield Row(f"log-linear attention bf16 {batch} {tokens} {heads} {dim}+{values}", [sums, attend])


def order():
    """Sorts and selections of FlagGems."""
    sort, wide = "flag_gems.ops.sort", "flag_gems.ops.topk"
    n, bits, tile = 1 << 24, 4, 2048
    bins, blocks = 1 << bits, up(n, tile)
    for element, size in (("f16", 2), ("f32", 4)):
        # The host code of the original has four passes for all types, which sort 16 bits.
        passes = 8 * size // bits
        keys, places = [P("x", element), P("spare", element), P("y", element)], [P(name, "i64") for name in ("indices", "spare_places", "order")]
        ends = lambda of, number: (of[0] if number == 0 else of[2 - number % 2], of[1 + number % 2])
        stages = [Clear("counts", passes * bins), Stage(sort, "compute_global_hist_kernel", lambda _: (up(n, 8 * 1024),), {
            "arr_ptr": P("x", element), "out_ptr": P("counts", "i32"), "num_passes": passes, "m": 1, "n": n, "tiles_n_per_cta": 8,
            "TILE_N": 1024, "TILE_R": 16, "num_bits_per_pass": bits, "descending": False})]
        for number in range(passes):
            (source, target), (source_places, target_places) = ends(keys, number), ends(places, number)
            stages += [Clear("status", bins * blocks), Stage(sort, "sweep", lambda _: (blocks, up(bins, 8)), {
                "arr_ptr": source, "associate_arr_ptr": source_places, "out_ptr": target, "associate_out_ptr": target_places,
                "excumsum_bins_ptr": P("starts", "u32"), "status_ptr": P("status", "u32"), "n_passes": passes, "pass_id": number,
                "bit_offset": number * bits, "m": 1, "N": n, "OUT_N": blocks, "TILE_N": tile, "TILE_R": 8, "k_bits": bits, "descending": False})]
        yield Row(f"sort {element} {n}", stages)
    for rows, n, k in ((128, 32768, 64), (16, 131072, 256)):
        chunks = up(n, 1024)
        stages = [
            Stage(wide, "topk_stage1_kernel", lambda _: (rows, chunks), {
                "y_ptr": P("parts", "f32"), "index_ptr": P("part_order", "i64"), "x_ptr": P("x", "f32"), "k": k, "N": n, "CHUNK_SIZE": 1024,
                "DESCENDING": True}),
            Stage(wide, "topk_stage2_kernel", lambda _: (rows,), {
                "y_ptr": P("y", "f32"), "index_ptr": P("order", "i64"), "chunk_x": P("parts", "f32"), "chunk_index": P("part_order", "i64"),
                "sort_dim": 1, "k": k, "N": chunks * k, "BLOCK_SIZE": chunks * k, "DESCENDING": True}),
        ]
        yield Row(f"top-k f32 {rows} {n} {k}", stages, [(wide, "topk_single_stage_kernel")])


def linalg():
    """Triangular systems of FlagGems."""
    module = "flag_gems.ops.linalg_solve_triangular"
    for element, n, k in (("f32", 512, 512), ("f32", 1024, 1024), ("f64", 1024, 1024)):
        common = {"A_ptr": P("a", element), "B_ptr": P("x", element), "INV_ptr": P("inverses", element), "N": n, "K": k, "stride_a_n": n,
                  "stride_b_k": k, "BLOCK_SIZE": 32, "UPPER": False, "UNIT": False}
        if n <= 512:
            stages = [Stage(module, "_kslice_trsm_kernel_notle", lambda _: (up(k, 8),), common | {"K_SLICE": 8, "BM": 128})]
        else:
            blocks = min(128, max(up(k, 32), up(n - 32, 64) * up(k, 64), 32))
            stages = [Clear("sync", 1), Stage(module, "_persistent_trsm_kernel_notle", lambda _: (blocks,), common | {
                "sync_ptr": P("sync", "i32"), "BLOCK_K": 32, "BM": 64, "BN": 64, "BK": 16, "NUM_CTAS": blocks, "THREADS": 1024,
                "IS_FP64": element == "f64"})]
        yield Row(f"triangular system {element} {n} {k}", stages,
                  [(module, f"_{kind}_kernel_notle") for kind in ("small_diag", "kslice_trsm", "persistent_trsm")])
