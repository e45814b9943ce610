//! The differential suite: every operation of the front end with every element type, on the cpu back
//! end and on a GPU, against references computed here in f64 or exactly; and its PTX through ptxas.
//!
//! Names are `cpu::…`, `cpu_tileir::…` (Tile IR bytecode, read back and interpreted), `gpu::…`, `gpu_tileir::…` (on a GPU
//! through Tile IR, with `CUTLET_SUITE_TILEIR=1`), of random kernels `cpu_traced::…` (before any pass) and `cpu_rewritten::…`
//! (after those of the ptx back end, too), of a sample of all `cpu_schedule::…` (the schedules of the ptx back end, simulated on the CPU), and for what is only assembled `sm_80::…`, `sm_90a::…` (PTX) and `tile_sm_80::…`, `tile_sm_90::…` and so on (Tile IR); a part of a name selects, as with any test.
//! Of all tests, where none are named, every third is run, and tests that have many cases try a sample of them; with
//! `CUTLET_TESTS=all` every one. `CUTLET_SUITE_SAMPLE=k` takes every k-th test, `CUTLET_REQUIRE_GPU=1` makes a missing GPU a failure,
//! `CUTLET_RANDOM_SEED` and `CUTLET_RANDOM_COUNT` steer the random kernels. `CUTLET_SUITE_TIMES=file`
//! notes the seconds that each test took. `CUTLET_SUITE_TIMEOUT=seconds` ends the
//! program when a test takes longer and names the tests that run (`--format pretty` shows each as it ends).
//! `CUTLET_SCHEDULES=k` simulates the schedules of every k-th test (1: of all).
//! `CUTLET_PTX_SUMS=file` only compares what is compiled with what was compiled before (see [`sums`]).
//!
//! PTX for sm_90a is assembled, and one text in three of those for sm_80 (`CUTLET_SUITE_EACH_KERNEL=1`: all).
//!
//! Bytecode of every kernel is disassembled for every target of Tile IR, and assembled, for one of the four, unless other
//! sizes of the same ops were before; `CUTLET_SUITE_EACH_KERNEL=1` assembles every kernel for one of them at least, in turn, and
//! `CUTLET_SUITE_ALL_TARGETS=1` for all. A GPU machine without `tileiras` takes its cubins along: the same program, run before with
//! `CUTLET_SUITE_KEEP_CUBINS=1 CUTLET_CACHE_DIR=folder` on `tile_sm_90`, fills the folder, and `gpu_tileir` with the
//! same `CUTLET_CACHE_DIR` finds them there (`scripts/pack --tileir`, then `gpu-run tileir`). Kernels with element types
//! that a target lacks are skipped through Tile IR; the reasons are counted at the end.

#![allow(clippy::type_complexity, reason = "the tests are tables of functions")]

mod array_expr;
mod array_table;
mod assert;
mod assumptions;
mod atomic;
mod atomic_store;
mod aux_loads;
mod cast;
mod cat_split;
mod chained;
mod chains;
mod cluster;
mod compare;
mod compared;
mod complex;
mod composed;
mod control;
mod data;
mod data_partition;
mod dependent;
mod early_exit;
mod early_returns;
mod elementwise;
mod epilogue;
mod examples;
mod exp_order;
mod extents;
mod extents_product;
mod float;
mod format;
mod gather;
mod global;
mod grid;
mod harness;
mod inline_ptx;
mod integer;
mod joined_operands;
mod large;
mod late_constants;
mod layouts;
mod linalg;
mod lines;
#[path = "../../benches/kernels/measure/mod.rs"]
mod measure;
mod memory;
mod memory_order;
mod mma_loops;
mod narrow;
mod narrow_bits;
mod numbers;
mod operand_conversion;
mod operand_forms;
mod partition;
mod philox;
mod pingpong;
mod pointer;
mod print;
mod product;
mod ptxas;
mod ragged;
mod random;
mod random_product;
mod ranks;
mod reduce;
mod require;
mod runner;
mod scan;
mod schedules;
mod scratch;
mod shape;
mod sort;
mod stochastic;
mod sums;
mod sweep;
#[path = "../../src/util/temp_dir.rs"]
mod temp_dir;
#[path = "../../src/util/test_sample.rs"]
mod test_sample;
mod thread_local_reduction;
mod tile_gather;
mod tileiras;
mod tma_boxes;
mod unroll;
mod unsigned;
mod views;

use std::process::ExitCode;

use harness::Suite;
use runner::{Completion, Trial};

fn main() -> ExitCode {
    if let Some(code) = print::child() {
        return code;
    }
    let mut suite = Suite::default();
    // An assembler of Tile IR is asked about each form of an op once: small kernels first.
    float::register(&mut suite);
    integer::register(&mut suite);
    numbers::register(&mut suite);
    complex::register(&mut suite);
    composed::register(&mut suite);
    cluster::register(&mut suite);
    compare::register(&mut suite);
    cast::register(&mut suite);
    shape::register(&mut suite);
    memory::register(&mut suite);
    unsigned::register(&mut suite);
    views::register(&mut suite);
    partition::register(&mut suite);
    inline_ptx::register(&mut suite);
    gather::register(&mut suite);
    pointer::register(&mut suite);
    global::register(&mut suite);
    array_table::register(&mut suite);
    scratch::register(&mut suite);
    atomic::register(&mut suite);
    atomic_store::register(&mut suite);
    memory_order::register(&mut suite);
    reduce::register(&mut suite);
    require::register(&mut suite);
    aux_loads::register(&mut suite);
    operand_conversion::register(&mut suite);
    unroll::register(&mut suite);
    scan::register(&mut suite);
    cat_split::register(&mut suite);
    narrow::register(&mut suite);
    narrow_bits::register(&mut suite);
    product::register(&mut suite);
    tma_boxes::register(&mut suite);
    joined_operands::register(&mut suite);
    operand_forms::register(&mut suite);
    control::register(&mut suite);
    dependent::register(&mut suite);
    early_exit::register(&mut suite);
    early_returns::register(&mut suite);
    ragged::register(&mut suite);
    assert::register(&mut suite);
    assumptions::register(&mut suite);
    print::register(&mut suite);
    grid::register(&mut suite);
    thread_local_reduction::register(&mut suite);
    linalg::register(&mut suite);
    ranks::register(&mut suite);
    stochastic::register(&mut suite);
    lines::register(&mut suite);
    examples::register(&mut suite);
    extents::register(&mut suite);
    extents_product::register(&mut suite);
    epilogue::register(&mut suite);
    sweep::register(&mut suite);
    pingpong::register(&mut suite);
    philox::register(&mut suite);
    sort::register(&mut suite);
    tile_gather::register(&mut suite);
    layouts::register(&mut suite);
    large::register(&mut suite);
    data_partition::register(&mut suite);
    chained::register(&mut suite);
    chains::register(&mut suite);
    late_constants::register(&mut suite);
    array_expr::register(&mut suite);
    exp_order::register(&mut suite);
    mma_loops::register(&mut suite);
    compared::register(&mut suite);
    random::register(&mut suite);
    random_product::register(&mut suite);
    let mut trials = suite.trials();
    harness::watch();
    if !sums::wanted() {
        trials.extend(random::trials());
        trials.extend(compared::trials());
        trials.push(philox::instructions());
        trials.push(Trial::new("reference::formats", || format::self_check().map(|()| Completion::Completed)));
    }
    let status = runner::run(trials);
    if let Err(error) = sums::finish() {
        eprintln!("{error:#}");
        return ExitCode::FAILURE;
    }
    harness::report_skipped();
    sweep::report();
    status
}
