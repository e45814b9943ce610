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
//! Bytecode of every kernel is disassembled for every target of Tile IR, and assembled, for one of the four, unless other
//! sizes of the same ops were before; `CUTLET_SUITE_EACH_KERNEL=1` assembles every kernel for one of them at least, in turn, and
//! `CUTLET_SUITE_ALL_TARGETS=1` for all. A GPU machine without `tileiras` takes its cubins along: the same program, run before with
//! `CUTLET_SUITE_KEEP_CUBINS=1 CUTLET_CACHE_DIR=folder` on `tile_sm_90`, fills the folder, and `gpu_tileir` with the
//! same `CUTLET_CACHE_DIR` finds them there (`scripts/pack --tileir`, then `gpu-run tileir`). Kernels with element types
//! that a target lacks are skipped through Tile IR; the reasons are counted at the end.

#![allow(clippy::type_complexity, reason = "the tests are tables of functions")]

mod assert;
mod atomic;
mod atomic_store;
mod bands;
mod boxes;
mod cast;
mod chained;
mod chains;
mod compare;
mod compared;
mod complex;
mod composed;
mod control;
mod cut;
mod data;
mod dependent;
mod elementwise;
mod examples;
mod extents;
mod extents_product;
mod finish;
mod float;
mod flow;
mod format;
mod gather;
mod global;
mod grid;
mod harness;
mod inline_ptx;
mod integer;
mod lane_sums;
mod large;
mod late;
mod layouts;
mod lines;
mod lookup;
#[path = "../../benches/kernels/measure/mod.rs"]
mod measure;
mod memory;
mod narrow;
mod narrow_bits;
mod numbers;
mod order;
mod philox;
mod pieces;
mod pointer;
mod print;
mod product;
mod promises;
mod ptxas;
mod random;
mod random_product;
mod reduce;
mod require;
mod riders;
mod rounds;
mod runner;
mod scan;
mod schedules;
mod scratch;
mod shape;
mod sort;
mod sums;
mod sweep;
mod table;
mod teams;
#[path = "../../src/util/temp_dir.rs"]
mod temp_dir;
#[path = "../../src/util/test_sample.rs"]
mod test_sample;
mod tileiras;
mod unsigned;
mod views;
mod whole;
mod works;

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
    compare::register(&mut suite);
    cast::register(&mut suite);
    shape::register(&mut suite);
    memory::register(&mut suite);
    unsigned::register(&mut suite);
    views::register(&mut suite);
    cut::register(&mut suite);
    inline_ptx::register(&mut suite);
    gather::register(&mut suite);
    pointer::register(&mut suite);
    global::register(&mut suite);
    table::register(&mut suite);
    scratch::register(&mut suite);
    atomic::register(&mut suite);
    atomic_store::register(&mut suite);
    order::register(&mut suite);
    reduce::register(&mut suite);
    require::register(&mut suite);
    riders::register(&mut suite);
    rounds::register(&mut suite);
    scan::register(&mut suite);
    pieces::register(&mut suite);
    narrow::register(&mut suite);
    narrow_bits::register(&mut suite);
    product::register(&mut suite);
    boxes::register(&mut suite);
    control::register(&mut suite);
    dependent::register(&mut suite);
    flow::register(&mut suite);
    assert::register(&mut suite);
    promises::register(&mut suite);
    print::register(&mut suite);
    grid::register(&mut suite);
    lane_sums::register(&mut suite);
    lines::register(&mut suite);
    examples::register(&mut suite);
    extents::register(&mut suite);
    extents_product::register(&mut suite);
    finish::register(&mut suite);
    sweep::register(&mut suite);
    teams::register(&mut suite);
    philox::register(&mut suite);
    sort::register(&mut suite);
    lookup::register(&mut suite);
    layouts::register(&mut suite);
    large::register(&mut suite);
    bands::register(&mut suite);
    chained::register(&mut suite);
    chains::register(&mut suite);
    late::register(&mut suite);
    whole::register(&mut suite);
    works::register(&mut suite);
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
