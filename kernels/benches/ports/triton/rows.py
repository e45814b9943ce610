"""Launches of the originals: kernels, grids and arguments of their host code."""
from compile import Clear, P, Row, Stage


def up(a, b):
    return -(-a // b)


def rows():
    yield from recurrent()


def recurrent():
    """Rows of flash-linear-attention."""
    # Inverses of 1 + A: one head, so that matrices are contiguous.
    count, steps = 8192, 64
    none = {"cu_seqlens": None, "chunk_indices": None}
    solve = Stage("fla.ops.utils.solve_tril", "merge_16x16_to_64x64_inverse_kernel", lambda _: (count, 1),
                  {"A": P("a", "f32"), "Ai": P("y", "f32"), **none, "T": count * steps, "H": 1, "BT": steps, "USE_TMA": False})
    yield Row(f"inverse of unit lower f32 {count} {steps}", {"linalg/triangular.rs": ("inverses",)},
              [Clear("y", count * steps * steps), solve])

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
    ours = {"recurrent/kimi_delta.rs": ("products", "prepare", "prepare_chunk", "recurrence"), "recurrent/tokens.rs": ("initial", "store_last")}
    yield Row(f"kimi delta chunks bf16 {batch} {tokens} {heads} {dim}", ours, stages)
