//! Clusters: MMAs whose operands the two CTAs of a cluster share.

use std::collections::BTreeSet;
use std::rc::Rc;

use super::schedules::each_schedule_of;
use super::*;
use crate::backend::ptx::schedule::{ClusterMulticast, KernelInfo, Schedule, WarpSpecialization};
use crate::backend::ptx::{OptimizationSet, PlanSearch, StampedSteps};

pub const PAIRS: CompileOptions = CompileOptions {
    has_many_blocks: false,
    num_warps: None,
    occupancy: None,
    num_stages: None,
    num_ctas: Some(2),
    code_limit: None,
    wait_limit: None,
    stamped: StampedSteps::None,
    tma: true,
    line_info: false,
    schedule: false,
    plan_search: PlanSearch::Off,
    pingpong: true,
    loaded_operands_in_registers: false,
    assumes_positive_params: false,
    optimizations: OptimizationSet::ALL,
};

/// Options for ping-pong.
pub const PINGPONG_OPTIONS: CompileOptions = CompileOptions { num_warps: Some(4), num_ctas: None, ..PAIRS };

/// Assignment of tiles to CTAs.
#[derive(Clone, Copy, PartialEq)]
enum Order {
    /// The grid has two extents.
    Plain,
    /// Groups of eight rows along x, column by column.
    Grouped,
    /// As `Plain`, but the trip count grows with the CTA index along x.
    Triangle,
    /// Persistent CTAs.
    Persistent,
}

/// Returns a tiled matrix multiplication. With `columns`, the right matrix is column-major.
fn product(elem: DType, [m, n, k]: [i64; 3], order: Order, columns: bool) -> Module {
    let mut kernel = Kernel::new("product");
    let arrays = [elem, elem, DType::F32].map(|elem| kernel.array(elem, 2, true));
    let ids = kernel.bids();
    let a = kernel.partition(&arrays[0], &[m as i32, k as i32], &[0, 1]);
    let b = kernel.partition(&arrays[1], &[k as i32, n as i32], if columns { &[1, 0] } else { &[0, 1] });
    let c = kernel.partition(&arrays[2], &[m as i32, n as i32], &[0, 1]);
    let (zero, one, eight, many) = (kernel.index(0), kernel.index(1), kernel.index(8), kernel.index(64));
    let (int, state) = (kernel.tile(DType::I32, &[]), kernel.tile(DType::F32, &[m, n]));
    let outer = (order == Order::Persistent).then(|| kernel.b.begin_block(&[int]));
    let tile = outer.map_or(ids[0], |outer| kernel.b.module.block(outer).args[0]);
    let (i, j) = match order {
        Order::Plain | Order::Triangle => (ids[0], ids[1]),
        Order::Grouped | Order::Persistent => {
            let division = |kernel: &mut Kernel, code, left| {
                let mut attrs = vec![Attr::Sign(Sign::Signed)];
                attrs.extend((code == Opcode::DivI).then_some(Attr::Rounding(Rounding::Zero)));
                kernel.b.simple(code, &[left, eight], attrs, int)
            };
            (division(&mut kernel, Opcode::RemI, tile), division(&mut kernel, Opcode::DivI, tile))
        }
    };
    let start = kernel.b.splat(DType::F32, 0, &[m, n]);
    let body = kernel.b.begin_block(&[int, state]);
    let args = kernel.b.module.block(body).args.clone();
    let (left, right) = (kernel.load(a, &[i, args[0]]), kernel.load(b, &[args[0], j]));
    let sum = kernel.b.simple(Opcode::MmaF, &[left, right, args[1]], vec![], state);
    kernel.b.op(Opcode::Continue, &[&[sum]], vec![], vec![], &[]);
    kernel.b.end_block();
    let count = if order == Order::Triangle { ids[0] } else { ids[2] };
    let id = kernel.b.op(Opcode::For, &[&[zero], &[count], &[one], &[start]], vec![], vec![body], &[state]);
    let result = kernel.b.module.op(id).results[0];
    kernel.store(result, c, &[i, j]);
    if let Some(outer) = outer {
        kernel.b.op(Opcode::Continue, &[&[]], vec![], vec![], &[]);
        kernel.b.end_block();
        kernel.b.op(Opcode::For, &[&[ids[0]], &[many], &[eight], &[]], vec![], vec![outer], &[]);
    }
    kernel.finish()
}

/// Returns a persistent kernel with tiles that four warps can compute.
pub fn persistent_tiles() -> Module {
    product(DType::F16, [128, 128, 64], Order::Persistent, false)
}

/// Returns a kernel of each order.
pub fn modules() -> Vec<Module> {
    let orders = [Order::Plain, Order::Grouped, Order::Triangle, Order::Persistent];
    orders.map(|order| product(DType::F16, [128, 256, 64], order, false)).into()
}

/// Returns the code for sm_90a in clusters of two, assembled without spills.
fn code(module: &Module) -> Compiled {
    let compiled = compile(module, Target::SM_90A, &PAIRS).unwrap();
    assemble(&compiled, Target::SM_90A);
    compiled
}

fn count(text: &str, what: &str) -> usize {
    text.matches(what).count()
}

/// Returns the arrival counts of the mbarriers, full and empty alternately.
fn barrier_counts(text: &str) -> Vec<u32> {
    let inits = text.lines().filter(|line| line.contains("mbarrier.init.shared"));
    inits.map(|line| line.rsplit([' ', ';']).find(|word| !word.is_empty()).unwrap().parse().unwrap()).collect()
}

#[test]
fn blocks_of_a_cluster_share_the_columns() {
    let compiled = code(&product(DType::F16, [128, 256, 64], Order::Plain, false));
    let text = &compiled.text;
    assert_eq!(compiled.cluster, 2);
    // Each CTA loads two of the four boxes of the right tile. The left tile is its own.
    assert_eq!(count(text, "multicast::cluster"), 2, "{text}");
    assert_eq!(count(text, "cp.async.bulk.tensor.2d.shared"), 3, "{text}");
    // Each CTA waits for all bytes of both tiles.
    assert!(text.contains(&format!("_, [%r{}], {};", arrival(text), (128 * 64 + 64 * 256) * 2)), "{text}");
    let counts = barrier_counts(text);
    assert!(!counts.is_empty() && counts.chunks(2).all(|stage| *stage == [1, 2 * 8]), "{counts:?}");
    // A cluster barrier precedes the first use of the peer's barriers. Stages are released in both
    // CTAs.
    assert_eq!(count(text, "barrier.cluster.arrive.relaxed.aligned"), 1);
    assert_eq!(count(text, "barrier.cluster.wait.acquire.aligned"), 1);
    assert!(!text.contains("barrier.cta.sync.aligned 0;"), "{text}");
    let arrivals = |space: &str| count(text, &format!("mbarrier.arrive.shared::{space}.b64"));
    assert!(arrivals("cluster") > 0 && arrivals("cluster") == arrivals("cta"), "{text}");
    assert!(!text.contains("arrive.release.cluster.shared"), "a fence of the device: {text}");
    let report = compiled.remarks.to_string();
    assert_eq!(count(&report, "multicast to 2 blocks"), 1, "{report}");
}

/// Returns the register of the full barrier that expects bytes.
fn arrival(text: &str) -> &str {
    let line = text.lines().find(|line| line.contains("expect_tx.shared")).unwrap();
    line.split("[%r").nth(1).unwrap().split(']').next().unwrap()
}

#[test]
fn the_producer_exits_after_the_last_multicast_to_its_block() {
    let compiled = code(&product(DType::F16, [128, 256, 64], Order::Plain, false));
    let text = &compiled.text;
    let stages = barrier_counts(text).len() / 2;
    let last_load = text.rfind("cp.async.bulk.tensor.2d.shared").unwrap();
    // The wait in the loop precedes the load.
    assert_eq!(count(&text[last_load..], "mbarrier.try_wait.parity"), stages, "{text}");
}

#[test]
fn indices_that_may_be_equal_are_compared() {
    for columns in [false, true] {
        let compiled = code(&product(DType::BF16, [128, 128, 64], Order::Grouped, columns));
        let text = &compiled.text;
        assert_eq!(compiled.cluster, 2);
        assert!(text.contains("multicast::cluster"), "{text}");
        let report = compiled.remarks.to_string();
        assert_eq!(count(&report, "multicast to 2 blocks"), 2, "{report}");
        // The rows are one box, and so are columns of a column-major array: split into halves.
        assert_eq!(count(&report, "boxes: 2"), 2, "{report}");
        // Before the loop, once for each tile.
        let before = &text[text.rfind("%cluster_ctarank").unwrap()..text.find("multicast::cluster").unwrap()];
        assert_eq!(count(&before[..before.find("\n$L").unwrap()], "setp.eq.u32"), 2, "{before}");
    }
}

#[test]
fn operands_of_every_shape_are_multicast() {
    for (elem, depth) in [(DType::F16, 64), (DType::F16, 32), (DType::TF32, 32), (DType::F8E4M3FN, 128)] {
        for tile in [[128, 128], [128, 256], [256, 128], [64, 64]] {
            for columns in [false, true] {
                let module = product(elem, [tile[0], tile[1], depth], Order::Grouped, columns);
                let compiled = code(&module);
                assert_eq!(compiled.cluster, 2, "{elem} {tile:?} {columns}: {}", compiled.remarks);
            }
        }
    }
}

#[test]
fn divergent_blocks_form_no_cluster() {
    let module = product(DType::F16, [128, 128, 64], Order::Triangle, false);
    let compiled = code(&module);
    assert_eq!(compiled.cluster, 1);
    let report = compiled.remarks.to_string();
    assert!(report.contains("cluster launch rejected: the way of a block depends on its place"), "{report}");
    let usual = compile(&module, Target::SM_90A, &CompileOptions::default()).unwrap();
    assert_eq!(compiled.text, usual.text);
}

#[test]
fn persistent_blocks_of_a_cluster_count_their_iterations() {
    let compiled = code(&product(DType::F16, [128, 128, 64], Order::Persistent, false));
    let text = &compiled.text;
    assert_eq!(compiled.cluster, 2);
    let report = compiled.remarks.to_string();
    assert_eq!(count(&report, "multicast to 2 blocks"), 2, "{report}");
    // The arrival count of an empty barrier is known only at run time.
    let inits: Vec<&str> = text.lines().filter(|line| line.contains("mbarrier.init.shared")).collect();
    let counts: Vec<bool> = inits.iter().map(|line| line.rsplit(", ").next().unwrap().starts_with("%r")).collect();
    assert!(counts.chunks(2).all(|stage| *stage == [false, true]), "{inits:?}");
    assert_eq!(count(&text[..text.find("mbarrier.init").unwrap()], "selp.b32"), 3, "{text}");
}

#[test]
fn clusters_need_producer_loads() {
    let module = product(DType::F16, [128, 128, 64], Order::Plain, false);
    for (target, options) in [(Target::SM_80, PAIRS), (Target::SM_90A, CompileOptions { tma: false, ..PAIRS })] {
        let compiled = compile(&module, target, &options).unwrap();
        assert_eq!(compiled.cluster, 1);
        assert!(
            compiled.remarks.to_string().contains("cluster launch rejected: no load is streamed"),
            "{}",
            compiled.remarks
        );
    }
    let usual = compile(&module, Target::SM_90A, &CompileOptions { num_ctas: Some(1), ..PAIRS }).unwrap();
    assert_eq!(usual.cluster, 1);
    assert!(!usual.text.contains("cluster_ctarank") && !usual.remarks.to_string().contains("clusters"));
}

#[test]
fn iterations_alternate_between_pingpong_groups() {
    let pingpong_groups = |module: &Module, options: &CompileOptions| {
        let options = CompileOptions { schedule: true, ..*options };
        let compiled = compile(module, Target::SM_90A, &options).unwrap();
        assemble(&compiled, Target::SM_90A);
        let is_pingpong = compiled.schedule.contains("pingpong 2: pipeline 0: 0 + loop ");
        // Two groups of four warps and a producer that releases registers; or four warps and one.
        assert_eq!(compiled.threads, if is_pingpong { 384 } else { 160 }, "{}", compiled.schedule);
        let report = compiled.remarks.to_string();
        assert_eq!(report.contains("warps: 2 x 4 consumer (ping-pong)"), is_pingpong, "{report}");
        (is_pingpong, count(&compiled.text, "setmaxnreg.inc"))
    };
    assert_eq!(pingpong_groups(&persistent_tiles(), &PINGPONG_OPTIONS), (true, 2));
    // Also in clusters. Not with several CTAs per SM, with one tile per CTA, or
    // with tiles of few registers.
    assert_eq!(
        pingpong_groups(&persistent_tiles(), &CompileOptions { num_ctas: Some(2), ..PINGPONG_OPTIONS }),
        (true, 2)
    );
    assert_eq!(
        pingpong_groups(&persistent_tiles(), &CompileOptions { occupancy: Some(2), ..PINGPONG_OPTIONS }),
        (false, 0)
    );
    assert_eq!(
        pingpong_groups(&product(DType::F16, [128, 128, 64], Order::Grouped, false), &PINGPONG_OPTIONS),
        (false, 0)
    );
    assert_eq!(
        pingpong_groups(&product(DType::F16, [64, 64, 64], Order::Persistent, false), &PINGPONG_OPTIONS),
        (false, 0)
    );
}

/// Returns schedules with wrong multicast loads, each with a description of the change.
pub fn mutants(info: &KernelInfo<'_>, schedule: &Schedule) -> Vec<(&'static str, Schedule)> {
    let mut mutants = Vec::new();
    let Some(warp_spec) = &schedule.warp_spec else { return mutants };
    let mut with = |what, change: &dyn Fn(&mut WarpSpecialization)| {
        let mut changed = WarpSpecialization::clone(warp_spec);
        change(&mut changed);
        mutants.push((what, Schedule { warp_spec: Some(Rc::new(changed)), ..schedule.clone() }));
    };
    for at in 0..warp_spec.pipelines.len() {
        with("the barriers of a pipeline count other CTAs", &|warp_spec| warp_spec.pipelines[at].clustered ^= true);
    }
    let Some(multicast) = &warp_spec.multicast else { return mutants };
    let edit = |warp_spec: &mut WarpSpecialization, change: &dyn Fn(&mut ClusterMulticast)| {
        change(warp_spec.multicast.as_mut().expect("a cluster"));
    };
    with("no load is multicast", &|warp_spec| warp_spec.multicast = None);
    for (&load, compared) in &multicast.multicast_loads {
        with("a multicast load has no channel", &|warp_spec| {
            edit(warp_spec, &|multicast| drop(multicast.multicast_loads.insert(info.regions.ops()[0], vec![])));
        });
        with("a multicast load has one box", &|warp_spec| {
            let loads = warp_spec.channels.iter_mut().flat_map(|channel| &mut channel.loads);
            loads.filter(|other| other.load == load).for_each(|load| load.boxes.truncate(1));
        });
        if compared.is_empty() {
            continue;
        }
        with("an index is not compared", &|warp_spec| {
            edit(warp_spec, &|multicast| drop(multicast.multicast_loads.insert(load, vec![])));
        });
        with("an index is not computed for the peer", &|warp_spec| edit(warp_spec, &|it| it.peer_ops.clear()));
    }
    if !multicast.outer_loops.is_empty() {
        with("trip counts are not compared", &|warp_spec| edit(warp_spec, &|it| it.outer_loops.clear()));
    }
    mutants
}

#[test]
fn the_verifier_rejects_other_multicast_loads() {
    let mut kinds = BTreeSet::new();
    let kernels = modules().into_iter().map(|module| ("pair".to_owned(), module, PAIRS)).collect();
    each_schedule_of(kernels, |name, info, body, schedule| {
        info.verify_schedule(body, schedule).unwrap_or_else(|problem| panic!("{name}: {problem}"));
        for (what, mutant) in mutants(info, schedule) {
            kinds.insert(what);
            assert!(info.verify_schedule(body, &mutant).is_err(), "{name}: {what}");
        }
    });
    assert_eq!(kinds.len(), 7, "{kinds:?}");
}
