//! The differential suite: every operation of the front end with every element type, on the cpu
//! back end and on a GPU. The references are computed here in f64 or exactly. ptxas assembles the
//! PTX of each.
//!
//! Names begin with the mode. `cpu::…` and `gpu::…` are launches. `cpu_tileir::…` is Tile IR
//! bytecode, read back and interpreted, and `gpu_tileir::…` is Tile IR on a GPU, with
//! `CUTLET_SUITE_TILEIR=1`. Random kernels also have `cpu_traced::…` (before any pass) and
//! `cpu_rewritten::…` (after the passes of the ptx back end). A sample of all tests has
//! `cpu_schedule::…`: the schedules of the ptx back end, simulated on the CPU. Code is only
//! assembled in `sm_80::…`, `sm_90a::…` (PTX), and in `tile_sm_80::…`, `tile_sm_90::…` and so on
//! (Tile IR). A part of a name selects, as with any test. Without a name every third test is run,
//! and tests with many cases run a sample of them; with `CUTLET_TESTS=all` every one.
//! `CUTLET_SUITE_SAMPLE=k` takes every k-th test, `CUTLET_REQUIRE_GPU=1` makes a missing GPU a
//! failure, `CUTLET_RANDOM_SEED` and `CUTLET_RANDOM_COUNT` steer the random kernels.
//! `CUTLET_SUITE_TIMES=file` notes the seconds that each test took. `CUTLET_SUITE_TIMEOUT=seconds`
//! ends the program when a test takes longer and names the tests that run (`--format pretty` shows
//! each as it ends). A sample of the products, sums and random kernels runs in exact mode, too
//! (`cpu_exact::…`, `gpu_exact::…`; see [`exact`]). `CUTLET_SCHEDULES=k` simulates the schedules of
//! every k-th test (1: of all). `CUTLET_PTX_SUMS=file` only compares the compiled code with that of
//! an earlier run (see [`sums`]).
//!
//! One text in three of PTX for sm_90a is assembled, and each that must not spill; one in five for
//! sm_80 (`CUTLET_SUITE_EACH_KERNEL=1`: all).
//!
//! Bytecode of every kernel is disassembled for two of the four targets of Tile IR. It is assembled
//! for one of the four, unless other sizes of the same ops have been assembled.
//! `CUTLET_SUITE_EACH_KERNEL=1` assembles every kernel for at least one of them, and
//! `CUTLET_SUITE_ALL_TARGETS=1` for all. A GPU machine without `tileiras` takes its cubins along:
//! the same program, run before with `CUTLET_SUITE_KEEP_CUBINS=1 CUTLET_CACHE_DIR=folder` on
//! `tile_sm_90`, fills the folder, and `gpu_tileir` with the same `CUTLET_CACHE_DIR` finds them
//! there (`scripts/pack --tileir`, then `gpu-run tileir`). Kernels with element types that a target
//! lacks are skipped through Tile IR; the reasons are counted at the end.

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
mod exact;
mod examples;
mod exp_order;
mod expected;
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
mod passes;
mod philox;
mod pingpong;
mod planted;
mod pointer;
mod print;
mod product;
mod ptxas;
mod ragged;
mod random;
mod random_product;
mod ranks;
mod reassociate;
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
mod want;

use std::process::ExitCode;

use harness::Suite;
use runner::{Completion, Trial};

/// The tests of the subjects. An assembler of Tile IR compiles each form of an op once: small
/// kernels are first.
const SUBJECTS: &[fn(&mut Suite)] = &[
    float::register,
    integer::register,
    numbers::register,
    reassociate::register,
    complex::register,
    composed::register,
    cluster::register,
    compare::register,
    cast::register,
    shape::register,
    memory::register,
    unsigned::register,
    views::register,
    partition::register,
    inline_ptx::register,
    gather::register,
    pointer::register,
    global::register,
    array_table::register,
    scratch::register,
    atomic::register,
    atomic_store::register,
    memory_order::register,
    reduce::register,
    require::register,
    aux_loads::register,
    operand_conversion::register,
    unroll::register,
    scan::register,
    cat_split::register,
    narrow::register,
    narrow_bits::register,
    product::register,
    tma_boxes::register,
    joined_operands::register,
    operand_forms::register,
    control::register,
    dependent::register,
    early_exit::register,
    early_returns::register,
    ragged::register,
    assert::register,
    assumptions::register,
    print::register,
    grid::register,
    thread_local_reduction::register,
    linalg::register,
    ranks::register,
    stochastic::register,
    lines::register,
    examples::register,
    extents::register,
    extents_product::register,
    epilogue::register,
    sweep::register,
    pingpong::register,
    philox::register,
    sort::register,
    tile_gather::register,
    layouts::register,
    large::register,
    data_partition::register,
    chained::register,
    chains::register,
    late_constants::register,
    array_expr::register,
    exp_order::register,
    mma_loops::register,
    compared::register,
    random::register,
    random_product::register,
];

fn main() -> ExitCode {
    if let Some(code) = print::child() {
        return code;
    }
    let mut suite = Suite::default();
    SUBJECTS.iter().for_each(|register| register(&mut suite));
    let mut trials = suite.trials();
    harness::watch();
    if !sums::wanted() {
        trials.extend(random::trials());
        trials.extend(passes::trials());
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
    passes::report();
    status
}
