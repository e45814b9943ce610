//! Data partitions: selection, schedule, and mutations that the verifier rejects.

use std::rc::Rc;

use super::mma_overlap::{softmax, softmax_of, with_steps};
use super::schedules::each_schedule_of;
use super::*;
use crate::backend::ptx::schedule::{Schedule, Step, SubStep, WarpRole, WarpSpecialization};
use crate::pass::data_partition;

/// Returns attention of the given number of rows.
pub fn whole(rows: i64) -> Module {
    softmax_of(rows, DType::F16, [64, 128, 64], false)
}

fn twelve() -> CompileOptions {
    CompileOptions { num_warps: Some(12), schedule: true, ..CompileOptions::default() }
}

/// Returns a kernel with three data partitions.
pub fn kernel() -> (String, Module, CompileOptions) {
    (
        "data partitions".to_owned(),
        data_partition::run(&whole(192), 3).unwrap(),
        CompileOptions { num_warps: Some(12), ..Default::default() },
    )
}

/// Returns the remark on rejected data partitions of a kernel.
fn refused(module: &Module, target: Target, options: &CompileOptions) -> String {
    let compiled = compile(module, target, options).unwrap();
    let remarks = compiled.remarks.to_string();
    assert!(!compiled.schedule.contains("data partitions"), "{}", compiled.schedule);
    let line = remarks.lines().find_map(|line| line.trim().strip_prefix("data partitioning rejected: "));
    line.unwrap_or_default().to_owned()
}

#[test]
fn three_data_partitions_share_loads_of_all_rows() {
    let compiled = compile(&whole(192), Target::SM_90A, &twelve()).unwrap();
    let (schedule, text) = (&compiled.schedule, &compiled.text);
    assert!(schedule.contains("partition consumer: warps 0..12, 3 data partitions"), "{schedule}{}", compiled.remarks);
    // The tiles of all partitions share a stage, and shared operands are loaded once.
    assert!(schedule.contains("f16 [64, 64], 3 boxes, swizzle 128B, 3 partitions"), "{schedule}");
    assert!(schedule.contains("f16 [64, 128], 2 boxes, swizzle 128B\n"), "{schedule}");
    assert_eq!((compiled.threads, compiled.cluster), (512, 1));
    // Twelve warps release a stage, and all partitions execute the same code.
    let of_load = [", 1;", ", 12;"]
        .map(|count| text.lines().filter(|line| line.contains("mbarrier.init") && line.ends_with(count)).count());
    assert!(of_load[0] > 4 && of_load[0] == of_load[1], "{of_load:?}");
    assert_eq!(text.matches("setmaxnreg.inc.sync.aligned.u32 160").count(), 1, "{text}");
    assert!(
        text.matches("barrier.cta.sync.aligned 0;").count() == 1
            && compiled.remarks.to_string().contains("3 x 4 consumer (data-partitioned by rows)"),
        "{text}"
    );
    assemble(&compiled, Target::SM_90A);
}

#[test]
fn a_data_partition_issues_all_mmas_of_an_iteration_in_order() {
    let schedule = compile(&whole(192), Target::SM_90A, &twelve()).unwrap().schedule;
    let inside = schedule.split_once("  for ").unwrap().1;
    let steps = ["order_wait mma", "consumer_wait", "order_arrive mma", "mma_wait", "reduce", "mma_wait"];
    let all = steps.iter().try_fold(inside, |rest, step| rest.split_once(step).map(|(_, rest)| rest));
    assert!(all.is_some(), "{schedule}");
    assert_eq!(["order_wait mma", "order_arrive mma"].map(|step| schedule.matches(step).count()), [1, 1], "{schedule}");
}

#[test]
fn mmas_of_192_rows_are_data_partitioned_by_default() {
    let options = CompileOptions { schedule: true, ..CompileOptions::default() };
    let of = |module: &Module, options: &CompileOptions| compile(module, Target::SM_90A, options).unwrap().schedule;
    assert!(of(&whole(192), &options).contains("3 data partitions"));
    assert!(!of(&whole(128), &options).contains("data partitions"));
    let plain = matmul(DType::F16, DType::F32, [192, 128, 64]);
    assert!(!of(&plain, &options).contains("data partitions") && of(&plain, &twelve()).contains("3 data partitions"));
    assert!(!of(&whole(192), &CompileOptions { num_warps: Some(8), ..options }).contains("data partitions"));
    assert_eq!(refused(&whole(192), Target::SM_80, &options), "");
}

#[test]
fn rejections_of_data_partitions_are_reported() {
    let meets = softmax_of(192, DType::F16, [64, 128, 64], true);
    for (module, target, why) in [
        (whole(192), Target::SM_80, "no products that run on their own"),
        (whole(128), Target::SM_90A, "too few rows"),
        (softmax(DType::F16, [64, 128, 64], false), Target::SM_90A, "too few rows"),
        (meets, Target::SM_90A, "`reduce` puts rows together"),
        (stored_twice(false), Target::SM_90A, "stores to an array that is stored to elsewhere"),
        (stored_twice(true), Target::SM_90A, "stores to an array that is read"),
    ] {
        let line = refused(&module, target, &twelve());
        assert!(line.contains(why), "{why}: {line}");
    }
}

/// Returns an MMA that is stored twice, or stored to the array of its left operand.
fn stored_twice(in_place: bool) -> Module {
    let mut k = Kernel::new("product");
    let (a, b, c) = (k.array(DType::F16, 2, true), k.array(DType::F16, 2, true), k.array(DType::F16, 2, true));
    let ids = k.bids();
    let rows = |k: &mut Kernel, array: &ArrayParam| k.partition(array, &[192, 64], &[0, 1]);
    let (va, vb, vc) = (rows(&mut k, &a), k.partition(&b, &[64, 64], &[0, 1]), rows(&mut k, &c));
    let (left, right) = (k.load(va, &[ids[0], ids[1]]), k.load(vb, &[ids[1], ids[1]]));
    let (ty, narrow) = (k.tile(DType::F32, &[192, 64]), k.tile(DType::F16, &[192, 64]));
    let zero = k.b.splat(DType::F32, 0, &[192, 64]);
    let product = k.b.simple(Opcode::MmaF, &[left, right, zero], vec![], ty);
    let product = k.b.simple(Opcode::FToF, &[product], vec![Attr::Rounding(Rounding::NearestEven)], narrow);
    k.store(product, if in_place { va } else { vc }, &[ids[0], ids[1]]);
    if !in_place {
        k.store(product, vc, &[ids[1], ids[0]]);
    }
    k.finish()
}

/// Returns wrong schedules, each with a description of the change.
fn mutants(schedule: &Schedule) -> Vec<(&'static str, Schedule)> {
    let mut mutants = Vec::new();
    let warp_spec = schedule.warp_spec.as_deref().unwrap();
    let banded = |warp_spec: &WarpSpecialization| {
        let all = warp_spec.channels.iter().enumerate();
        let mut loads = all.flat_map(|(at, channel)| (0..channel.loads.len()).map(move |load| [at, load]));
        loads.find(|&[at, load]| warp_spec.channels[at].loads[load].partitions > 1).unwrap()
    };
    let mut with_warp_spec = |what, change: &dyn Fn(&mut WarpSpecialization)| {
        let (mut changed, mut warp_spec) = (schedule.clone(), warp_spec.clone());
        change(&mut warp_spec);
        changed.warp_spec = Some(Rc::new(warp_spec));
        mutants.push((what, changed));
    };
    let [at, load] = banded(warp_spec);
    with_warp_spec("one data partition", &|warp_spec| warp_spec.data_partitions = 1);
    with_warp_spec("fewer data partitions", &|warp_spec| warp_spec.data_partitions = 2);
    with_warp_spec("the tile of one data partition", &|warp_spec| warp_spec.channels[at].loads[load].partitions = 1);
    with_warp_spec("a common tile for each data partition", &|warp_spec| {
        let other =
            warp_spec.channels.iter_mut().flat_map(|channel| &mut channel.loads).find(|load| load.partitions == 1);
        other.unwrap().partitions = 3;
    });
    with_warp_spec("a data partition has the rows of another one", &|warp_spec| {
        let boxes = &mut warp_spec.channels[at].loads[load].boxes;
        (boxes[1].coord, boxes[2].coord) = (boxes[2].coord.clone(), boxes[1].coord.clone());
    });
    with_warp_spec("the rows of a data partition are not loaded", &|warp_spec| {
        let load = &mut warp_spec.channels[at].loads[load];
        load.boxes.pop();
        load.bytes = load.bytes / 3 * 2;
    });
    with_warp_spec("the tile of a data partition is at another offset", &|warp_spec| {
        warp_spec.channels[at].loads[load].boxes[1].smem_offset += 1024
    });
    let mut fewer = schedule.clone();
    fewer.partitions.iter_mut().find(|partition| partition.role == WarpRole::Consumer).unwrap().warps.end -= 4;
    mutants.push(("a data partition without warps", fewer));
    for (body, steps) in schedule.sequences.iter().enumerate() {
        for (at, step) in steps.iter().enumerate() {
            let mut with = |what, change: &dyn Fn(&mut Vec<Step>)| {
                mutants.push((what, with_steps(schedule, body, change)));
            };
            match step {
                Step::OrderWait { .. } => {
                    with("a section ends before its begin", &|steps| drop(steps.remove(at)));
                    with("a section begins in a section", &|steps| steps.insert(at, steps[at].clone()));
                    with("a barrier of the warps of a data partition", &|steps| {
                        steps.insert(at + 1, Step::Sub(SubStep::Barrier { required: true }))
                    });
                    with("a section waits for a stage", &|steps| {
                        let mma_wait = steps.iter().position(|step| matches!(step, Step::MmaWait(_))).unwrap();
                        let mma_wait = steps.remove(mma_wait);
                        steps.insert(at + 2, mma_wait);
                    });
                    with("a section begins after its MMA", &|steps| steps.swap(at, at + 1));
                }
                Step::OrderArrive(_) => {
                    with("a section does not end", &|steps| drop(steps.remove(at)));
                    with("a section ends twice", &|steps| steps.insert(at, steps[at].clone()));
                    with("a section ends before its MMA", &|steps| steps.swap(at - 1, at));
                }
                _ => {}
            }
        }
    }
    mutants
}

#[test]
fn data_partitions_are_verified() {
    let (mut count, mut missed) = (0, Vec::new());
    each_schedule_of(vec![kernel()], |name, info, body, schedule| {
        assert!(name.ends_with("sm_90a"), "{name} has no data partitions");
        info.verify_schedule(body, schedule).unwrap();
        for (what, mutant) in mutants(schedule) {
            count += 1;
            missed.extend(info.verify_schedule(body, &mutant).is_ok().then_some(what));
        }
    });
    assert!(missed.is_empty(), "{missed:?}");
    assert_eq!(count, 16);
}
