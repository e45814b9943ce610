"""Kernels of the rows: the original, what its port needs, and the functions of our kernels by file."""
GYM, LIGER, FLASHINFER, FLA = "TileGym `ops/", "TileGym `suites/liger/", "TileGym `suites/flashinfer/", "flash-linear-attention `ops/"

ONLINE = {"attention/online.rs": ("Exponent::new", "Exponent::of", "Online::new", "Online::add", "Online::finish")}
ATTENTION = {"attention/forward.rs": ("attend", "contiguous"), **ONLINE}
PACKED = {"attention/forward.rs": ("attend", "packed"), **ONLINE}
DECODE = {"attention/decode.rs": ("decode", "sum_of_parts"), **ONLINE}
LATENT = {"attention/latent.rs": ("decode", "Source::pages", "Source::load"), **ONLINE}
PARTS = {"attention/decode.rs": ("add_parts", "sum_of_parts")}
NORM = {"norms/norm.rs": ("kernel",)}
MATMUL = {"products/matmul/kernel.rs": ("order", "sums", "finish", "product")}
GROUPS = {"products/matmul/groups.rs": ("num_row_tiles", "place")}
GATHER = {"moe/gather.rs": ("kernel",)}
SCALED = {"products/scaled.rs": ("product",)}
DELTA_CHUNKS = ("products", "prepare", "prepare_chunk", "levels", "level_decay", "is_level", "Form::gates", "Form::key_parts", "Form::gate_of")
TOP_K = {"order/top_k.rs": ("places", "long_rows", "short_rows"), "order/select.rs": ("digit", "select_prefix", "select_rest")}
SORT = {"order/radix_sort/kernels.rs": ("count", "starts", "pass", "look_back", "Plan::digits", "Plan::by_warp", "Plan::by_thread", "Plan::with")}

# By the begin of a row; the first one that fits.
NOTES = {
    "softmax": (GYM + "softmax.py`", "rows in registers, or by chunks with an online sum", {"norms/softmax.rs": ("load", "online", "forward")}),
    "rms_norm": (GYM + "rms_norm.py`", "rows in registers", NORM),
    "layer_norm": (GYM + "layer_norm_legacy.py`", "rows in registers", NORM),
    "rope": (GYM + "rope.py`", "halves of rows", {"norms/rotary.rs": ("rotate", "kernel")}),
    "swiglu": (GYM + "swiglu.py`", "fast exponentials", {"norms/gated.rs": ("Gate::of", "place", "forward")}),
    "matmul": (GYM + "matmul.py`", "TMA, wgmma, persistent blocks", MATMUL),
    "attention causal": (GYM + "attention.py`", "online softmax, rotated loop", ATTENTION),
    "attention full": (GYM + "attention.py`", "online softmax, rotated loop", ATTENTION),
    "attention softcap": (GYM + "gemma_attention.py`", "approximate tangent, two ranges of keys", ATTENTION),
    "attention slopes": (GYM + "attention_variant.py`", "closures in kernels", ATTENTION),
    "attention bias": (GYM + "attention_variant.py`", "closures in kernels, arrays as their arguments", ATTENTION),
    "packed attention": (GYM + "attention_varlen.py`", "slices at offsets of a table by TMA", PACKED),
    "neighborhood": (LIGER + "fused_neighborhood_attention.py`", "window of keys", ATTENTION),
    "latent decode": (GYM + "mla_decoding_split_kv.py`", "512 columns of sums in blocks, last block adds parts", {**LATENT, **PARTS}),
    "sparse latent": (GYM + "experimental/sparse_mla.py`", "gathered rows as operand", LATENT),
    "paged decode": (FLASHINFER + "fmha_decode_bsr.py`", "rows of pages as operand", DECODE),
    "sink decode": (GYM + "attention_sink_decode.py`", "sinks of heads, last block adds parts", DECODE),
    "grouped product": ("TileGym `suites/unsloth/grouped_gemm.py`", "groups of rows that begin anywhere, by TMA", {**MATMUL, **GROUPS}),
    "experts": ("cuTile Python `samples/MoE.py`", "gathered rows, groups of tiles", {"moe/product.rs": ("kernel",), **GATHER}),
    "expert activation": (GYM + "moe_actgrad_bwd.py`", "gathered rows as operand, epilogue in strips, atomics",
                          {"moe/activation.rs": ("kernel",), "norms/gated.rs": ("Gate::with_derivative",)}),
    "moe alignment": (GYM + "moe_align_block.py`", "histogram, prefix sums, scatter",
                      {"moe/alignment.rs": ("experts_of", "count", "sum", "place")}),
    "sparsemax": (LIGER + "sparsemax.py`", "loop with a condition on a tile; no sort", {"norms/sparsemax.rs": ("forward",)}),
    "gated delta step": (GYM + "recurrent_gated_delta_rule.py`", "state in registers", {"recurrent/delta_rule.rs": ("step",)}),
    "gated delta chunks": (GYM + "chunk_gated_delta_rule.py`", "inverse of unit lower triangles, carried state",
                           {"recurrent/delta_rule.rs": ("prepare", "recurrence")}),
    "mamba2": (GYM + "mamba2.py`", "prefix sums, carried state", {"recurrent/mamba2.rs": ("lengths", "sequences")}),
    "grpo backward": (LIGER + "grpo_loss.py`", "online sums of groups of columns", {"losses/grpo.rs": ("loss", "backward")}),
    "grpo": (LIGER + "grpo_loss.py`", "online sums of groups of columns", {"losses/grpo.rs": ("loss", "forward")}),
    "FlashInfer's scaled": ("FlashInfer `gemm_fp8_nt_groupwise_cutile.py`", "e4m3, copied scales", SCALED),
    "scaled products of groups": (FLASHINFER + "gemm/ragged_block_scaled_bmm.py`", "groups that begin anywhere, e4m3 with scales",
                                  {**SCALED, **GROUPS}),
    "scaled product": (GYM + "fp8_quantization_matmul.py`", "e4m3, copied scales", SCALED),
    "hyper-connection weights": (GYM + "experimental/mhc.py`", "split product in one launch, squares of its operand",
                                 {"norms/hyper.rs": ("sums", "finish", "weights")}),
    "hyper-connection streams": (GYM + "experimental/mhc.py`", "products of few streams", {"norms/hyper.rs": ("apply",)}),
    "product of a list": ("cuTile Python `samples/AllGatherMatmul.py`", "arrays by run-time index",
                          {"../benches/ports/rows/list.rs": ("product",)}),
    "inverse of unit lower": (FLA + "utils/solve_tril.py`", "triangular inverse of a tile", {"linalg/triangular.rs": ("inverses",)}),
    "kimi delta": (FLA + "kda/chunk_intra.py` and its chunks", "triangular inverse, carried state",
                   {"recurrent/kimi_delta.rs": ("recurrence",), "recurrent/delta_chunks.rs": DELTA_CHUNKS}),
    "log-linear": (FLA + "log_linear_attn/chunk.py`", "levels by bits of positions",
                   {"recurrent/log_linear.rs": ("decay", "nodes", "ancestors", "results")}),
    "sort": ("FlagGems `ops/sort.py`", "device-wide prefix sums by look-back", SORT),
    "top-k selector": ("TileLang `examples/deepseek_v32/topk_selector.py`", "histograms of digits", TOP_K),
    "top-k": ("FlagGems `ops/topk.py`", "histograms of digits", TOP_K),
    "triangular system": ("FlagGems `ops/linalg_solve_triangular.py`", "flags between blocks, f64 products",
                          {"linalg/triangular.rs": ("solves", "invert_blocks", "substitute")}),
    "convolution": ("TileLang `examples/convolution`", "im2col by TMA",
                    {"images/implicit_gemm.rs": ("place", "add", "sum", "store", "convolve")}),
    "sinkhorn": ("TileKernels `mhc/sinkhorn_kernel.py`", "loops on small tiles", {"norms/sinkhorn.rs": ("kernel",)}),
    "quantize e5m6": ("TileKernels `quant/per_token_cast_to_e5m6_kernel.py`", "floats of 12 bits in bytes",
                      {"numbers/quantize/e5m6.rs": ("encode", "store", "quantize")}),
    "fft": ("cuTile Python `samples/FFT.py`", "complex pairs, transform of a tile", {"numbers/fft.rs": ("turned", "rows")}),
}


def note(row):
    """Original, needs and functions of a row."""
    return next(of for begin, of in NOTES.items() if row.startswith(begin))
