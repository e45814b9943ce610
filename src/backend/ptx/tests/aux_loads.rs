//! Auxiliary loads: selection, and mutations that the verifier rejects.

use super::cp_async::scaled_product;
use super::deferred_load::scaled;
use super::schedules::each_schedule_of;
use super::sync::mma_waits::turned_products;
use super::*;
use crate::backend::ptx::schedule::{LoadPath, Schedule, Step, WarpRole};

/// Returns MMAs in both directions with a number for each of `columns` columns between them, with
/// `branch` in a branch.
fn levels(dtype: DType, columns: i32, branch: bool) -> Module {
    turned_products(Some((dtype, columns, branch)))
}

/// Returns kernels with auxiliary loads.
pub fn kernels() -> Vec<(String, Module, CompileOptions)> {
    let levels = [false, true].map(|branch| levels(DType::F32, 64, branch));
    let named = |module| ("an auxiliary load".to_owned(), module, CompileOptions::default());
    levels.into_iter().map(named).chain(scales()).collect()
}

/// Returns MMAs with a computed operand that is scaled by a row, before and after the load of
/// the other operand.
fn scales() -> [(String, Module, CompileOptions); 2] {
    [false, true].map(|late| ("scaled operand".to_owned(), scaled_product((1, 64), late), CompileOptions::default()))
}

/// Returns schedules with auxiliary loads at other positions, each with a description of the
/// change.
pub fn mutants(schedule: &Schedule) -> Vec<(&'static str, Schedule)> {
    let Some(warp_spec) = schedule
        .warp_spec
        .as_ref()
        .filter(|warp_spec| warp_spec.load_paths.keys().any(|&load| warp_spec.aux_channel(load).is_some()))
    else {
        return Vec::new();
    };
    let mut aux_loads = warp_spec.load_paths.keys().filter_map(|&load| Some((load, warp_spec.aux_channel(load)?)));
    let (load, channel) = aux_loads.next().map(|(load, channel)| (load, channel as usize)).expect("an auxiliary load");
    let mut mutants = Vec::new();
    let mut with = |what, change: &dyn Fn(&mut crate::backend::ptx::schedule::WarpSpecialization)| {
        let mut changed = schedule.clone();
        let mut warp_spec = (**warp_spec).clone();
        change(&mut warp_spec);
        changed.warp_spec = Some(std::rc::Rc::new(warp_spec));
        mutants.push((what, changed));
    };
    let at = warp_spec.channels[channel].loads.iter().position(|streamed| streamed.load == load).expect("its load");
    with("a small tile begins within a grain", &|warp_spec| warp_spec.channels[channel].loads[at].smem_offset += 64);
    with("a small tile overlaps another one", &|warp_spec| warp_spec.channels[channel].loads[at].smem_offset = 0);
    with("a small tile is copied in part", &|warp_spec| warp_spec.channels[channel].loads[at].map.dims[0].boxed /= 2);
    with("a small tile is called an operand", &|warp_spec| {
        warp_spec.load_paths.insert(load, LoadPath::TmaOperand { channel: channel as u32 });
    });
    mutants
}

/// Returns the number of tiles that threads read from stages on sm_90a.
fn read(module: Module, options: CompileOptions) -> usize {
    let mut found = 0;
    each_schedule_of(vec![("levels".to_owned(), module, options)], |name, info, body, schedule| {
        info.verify_schedule(body, schedule).unwrap();
        let steps = schedule.sequences.iter().flatten();
        let count = steps.filter(|step| matches!(step, Step::LocalLoad(_))).count();
        assert!(count == 0 || name.ends_with("sm_90a"), "{name}");
        found += count;
    });
    found
}

#[test]
fn vectors_of_all_rows_are_auxiliary_loads() {
    let plain = CompileOptions::default;
    assert_eq!(read(levels(DType::F32, 64, false), plain()), 1);
    assert_eq!(read(levels(DType::F16, 64, false), plain()), 1);
    assert_eq!(read(levels(DType::F32, 64, true), plain()), 1);
    // A TMA box has at least 16 bytes.
    assert_eq!(read(levels(DType::F32, 1, false), plain()), 0);
    // In a cluster, each CTA loads its own tile.
    assert_eq!(read(levels(DType::F32, 64, false), CompileOptions { num_ctas: Some(2), ..plain() }), 1);
    // Without TMA there are no auxiliary loads.
    assert_eq!(read(levels(DType::F32, 64, false), CompileOptions { tma: false, ..plain() }), 0);
}

#[test]
fn auxiliary_loads_are_read_at_their_use() {
    let with_aux_loads = kernels().into_iter().filter(|(name, ..)| name == "an auxiliary load").collect();
    each_schedule_of(with_aux_loads, |name, _, _, schedule| {
        let Some(partition) = schedule.partition(WarpRole::Consumer).filter(|_| name.ends_with("sm_90a")) else {
            return;
        };
        let mut inner = schedule.steps(partition.body).iter().flat_map(Step::sequences);
        let steps = schedule.steps(*inner.next().expect("a loop"));
        let position = |is: &dyn Fn(&Step) -> bool| steps.iter().position(is).expect("such a step");
        let product = position(&|step| matches!(step, Step::Mma(_)));
        let get = position(&|step| matches!(step, Step::LocalLoad(_)));
        assert!(product < get && matches!(steps[get + 1], Step::Deferred(_)), "{name}");
    });
    let text = check(&levels(DType::F32, 64, false)).pop().unwrap().text;
    // Eight pairs of adjacent elements, and no load from the array.
    assert_eq!(text.matches("ld.volatile.shared.v2").count(), 8, "{text}");
    assert!(!text.contains("ld.global"), "{text}");
}

#[test]
fn rows_that_scale_an_operand_are_read_before_its_mma() {
    let mut found = 0;
    each_schedule_of(scales().into(), |name, info, body, schedule| {
        let Some(partition) = schedule.partition(WarpRole::Consumer).filter(|_| name.ends_with("sm_90a")) else {
            return;
        };
        info.verify_schedule(body, schedule).unwrap();
        let inner = *schedule.steps(partition.body).iter().flat_map(Step::sequences).next().expect("a loop");
        let steps = schedule.steps(inner);
        let aux = |id| matches!(schedule.load_path(id), LoadPath::TmaAux { .. });
        let position = |is: &dyn Fn(&Step) -> bool| steps.iter().position(is).expect("such a step");
        let advance = position(&|step| matches!(step, Step::Advance(_)));
        let wait = position(&|step| matches!(step, Step::ConsumerWait(_)));
        let get = position(&|step| matches!(step, &Step::LocalLoad(id) if aux(id)));
        let product = position(&|step| matches!(step, Step::Mma(_)));
        assert!(advance < wait && wait < get && get < product, "{name}");
        found += 1;
    });
    assert_eq!(found, 2);
}

#[test]
fn auxiliary_loads_after_the_mmas_are_read_during_them() {
    let module = scaled(false, 128, 128);
    let mut found = 0;
    each_schedule_of(vec![("scaled".to_owned(), module, CompileOptions::default())], |name, info, body, schedule| {
        let Some(partition) = schedule.partition(WarpRole::Consumer).filter(|_| name.ends_with("sm_90a")) else {
            return;
        };
        let inner = *schedule.steps(partition.body).iter().flat_map(Step::sequences).next().expect("a loop");
        let position = |is: &dyn Fn(&Step) -> bool| schedule.steps(inner).iter().position(is).expect("such a step");
        let product = position(&|step| matches!(step, Step::Mma(plan) if !plan.releases.is_empty()));
        let get = position(&|step| matches!(step, Step::LocalLoad(_)));
        let mma_wait = position(&|step| matches!(step, Step::MmaWait(_)));
        assert!(product < get && get < mma_wait, "{name}");
        info.verify_schedule(body, schedule).unwrap();
        // After the MMA wait, the stage is released.
        let mut sunk = schedule.clone();
        sunk.sequences[inner.0 as usize][get..=mma_wait].rotate_right(1);
        let problem = info.verify_schedule(body, &sunk).unwrap_err();
        assert!(problem.contains("before the wait for its tiles"), "{name}: {problem}");
        found += 1;
    });
    assert_eq!(found, 1);
    // A TMA box has at least 16 bytes.
    assert_eq!(read(scaled(false, 128, 1), CompileOptions::default()), 0);
}
