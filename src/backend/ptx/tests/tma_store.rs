//! TMA stores: selection, and mutations of their boxes that the verifier rejects.

use std::collections::HashSet;

use super::schedules::each_schedule_of;
use super::*;
use crate::backend::ptx::schedule::{LayoutId, Schedule, StagingBuffer, Step, StoreSplit, TmaStore};
use crate::backend::ptx::smem::allocation::Buffer;
use crate::backend::ptx::smem::tma_box::TmaBoxLayout;
use crate::backend::ptx::tensor_map::Swizzle;
use crate::ir::{AtomicMode, MemScope};

/// Returns the tile with other bits of its elements.
fn with_bits(tile: &TmaBoxLayout, change: impl FnOnce(&mut Vec<u32>)) -> Option<TmaBoxLayout> {
    let mut order = tile.order.clone();
    change(&mut order);
    let shared = &tile.shared;
    TmaBoxLayout::from_bit_order(&shared.shape, shared.element_bytes, tile.boxes.clone(), order, tile.split_bits)
}

/// Returns schedules with other TMA stores, each with a description of the change.
pub fn mutants(schedule: &Schedule) -> Vec<(&'static str, Schedule)> {
    let mut mutants = Vec::new();
    for (body, steps) in schedule.sequences.iter().enumerate() {
        for (at, step) in steps.iter().enumerate() {
            let Step::TmaStore(tma_store) = step else { continue };
            instead(tma_store, &mut |what, tma_store| {
                let mut changed = schedule.clone();
                changed.sequences[body][at] = Step::TmaStore(Box::new(tma_store));
                mutants.push((what, changed));
            });
        }
    }
    mutants
}

/// Adds wrong stores in place of this one.
fn instead(tma_store: &TmaStore, add: &mut dyn FnMut(&'static str, TmaStore)) {
    let mut with = |what, change: &dyn Fn(&mut TmaStore)| {
        let mut changed = tma_store.clone();
        change(&mut changed);
        add(what, changed);
    };
    let last = tma_store.tile.order.len() - 1;
    let inside = tma_store.tile.boxes.iter().product::<i64>().ilog2() as usize;
    let orders = [
        ("elements of a box change places", with_bits(&tma_store.tile, |order| order.swap(1, inside - 1))),
        ("half of a tile is in no box", with_bits(&tma_store.tile, |order| order.truncate(last))),
        ("elements stand twice", with_bits(&tma_store.tile, |order| order[last] = order[0])),
    ];
    for (what, tile) in orders {
        let tile = tile.expect("a tile with such rows");
        with(what, &|tma_store| tma_store.tile = tile.clone());
    }
    with("boxes are larger than the buffer", &|tma_store| *tma_store.tile.boxes.last_mut().unwrap() *= 2);
    with("boxes are in another order of chunks", &|tma_store| tma_store.tile.swizzle = Swizzle::None);
    with("an element is at another offset", &|tma_store| tma_store.tile.shared.offset_bases[0] ^= 1 << 14);
    with("parts are smaller than boxes", &|tma_store| tma_store.tile.split_bits = tma_store.tile.order.len() as u32);
    with("the tile is of another type", &|tma_store| tma_store.tile.shared.element_bytes *= 2);
    with("the tile is there in no layout", &|tma_store| tma_store.layout = LayoutId(u32::MAX));
    let Some(staging) = tma_store.staging else {
        let parts = StoreSplit { count: 1, bytes: tma_store.tile.bytes(), in_flight: 1 };
        let staging = StagingBuffer { buffer: Buffer { offset: 0, bytes: parts.bytes }, channel: None, split: parts };
        with("warps send boxes of the whole block", &|tma_store| tma_store.staging = Some(staging));
        return;
    };
    with("the block sends boxes of a warp", &|tma_store| tma_store.staging = None);
    let mut with_staging = |what, change: &dyn Fn(&mut StagingBuffer)| {
        let mut changed = staging;
        change(&mut changed);
        with(what, &|tma_store| tma_store.staging = Some(changed));
    };
    with_staging("boxes of warps do not begin where they may", &|staging| staging.buffer.offset += 128);
    // The buffer in a reused stage begins at the stage.
    if staging.channel.is_none() {
        with_staging("boxes of warps stand in stages", &|staging| staging.buffer.offset = 0);
    }
    with_staging("boxes of warps stand where others write", &|staging| staging.buffer.offset += staging.buffer.bytes);
    with_staging("boxes of warps have no room", &|staging| staging.buffer.bytes /= 2);
    with_staging("parts that do not exist", &|staging| staging.split.count *= 2);
    with_staging("parts are of other bytes", &|staging| staging.split.bytes /= 2);
    with_staging("more parts side by side than there are", &|staging| {
        staging.split.in_flight *= 2 * staging.split.count
    });
}

/// Returns an MMA that is stored twice. With `is_read`, its array is also the destination of
/// additions.
fn stored_twice(is_read: bool) -> Module {
    let mut k = Kernel::new("twice");
    let arrays = [k.array(DType::F16, 2, true), k.array(DType::F32, 2, true)];
    let ids = k.bids();
    let [a, c] = [0, 1].map(|array| k.partition(&arrays[array], &[64, 64], &[0, 1]));
    let (left, right) = (k.load(a, &[ids[0], ids[1]]), k.load(a, &[ids[1], ids[0]]));
    let state = k.tile(DType::F32, &[64, 64]);
    let start = if is_read { k.load(c, &[ids[0], ids[1]]) } else { k.b.splat(DType::F32, 0, &[64, 64]) };
    let product = k.b.simple(Opcode::MmaF, &[left, right, start], vec![], state);
    k.store(product, c, &[ids[0], ids[1]]);
    k.store(product, c, &[ids[1], ids[0]]);
    k.finish()
}

fn sends(schedule: &Schedule) -> usize {
    schedule.tma_stores().count()
}

#[test]
fn all_stores_of_an_array_are_tma_stores_or_none() {
    for (is_read, count) in [(false, 2), (true, 0)] {
        let kernel = ("twice".to_owned(), stored_twice(is_read), CompileOptions::default());
        each_schedule_of(vec![kernel], |name, info, body, schedule| {
            let count = if name.ends_with("sm_90a") { count } else { 0 };
            assert_eq!(sends(schedule), count, "{name}:\n{}", schedule.to_text(info.module));
            info.verify_schedule(body, schedule).unwrap();
            let mut mixed = schedule.clone();
            let Some(step) = mixed.sequences.iter_mut().flatten().find(|step| matches!(step, Step::TmaStore(_))) else {
                return;
            };
            *step = Step::Exec(step.op().unwrap());
            let problem = info.verify_schedule(body, &mixed).unwrap_err();
            assert!(problem.contains("others access the array"), "{problem}");
        });
    }
}

/// Returns an MMA that is added to an array by an atomic of this scope. With `is_stored`, it is
/// stored, too.
fn added(dtype: DType, scope: MemScope, is_stored: bool) -> Module {
    let mut k = Kernel::new("added");
    let arrays = [k.array(DType::F16, 2, true), k.array(dtype, 2, true)];
    let ids = k.bids();
    let a = k.partition(&arrays[0], &[64, 64], &[0, 1]);
    let c = k.partition_with(&arrays[1], &[64, 64], &[0, 1], None);
    let (left, right) = (k.load(a, &[ids[0], ids[1]]), k.load(a, &[ids[1], ids[0]]));
    let (state, result) = (k.tile(DType::F32, &[64, 64]), k.tile(dtype, &[64, 64]));
    let start = k.b.splat(DType::F32, 0, &[64, 64]);
    let mut product = k.b.simple(Opcode::MmaF, &[left, right, start], vec![], state);
    if dtype != DType::F32 {
        product = k.b.simple(Opcode::FToF, &[product], vec![Attr::Rounding(Rounding::NearestEven)], result);
    }
    let token = k.b.module.intern(Type::Token);
    let attrs = vec![Attr::MemOrder(MemOrder::Relaxed), Attr::MemScope(scope), Attr::AtomicMode(AtomicMode::AddF)];
    for index in [[ids[0], ids[1]], [ids[1], ids[0]]] {
        k.b.op(Opcode::AtomicRedView, &[&[c], &index, &[product], &[]], attrs.clone(), vec![], &[token]);
    }
    if is_stored {
        k.store(product, c, &[ids[0], ids[2]]);
    }
    k.finish()
}

/// Returns a kernel with TMA reductions.
pub fn kernel() -> (String, Module, CompileOptions) {
    ("added".to_owned(), added(DType::F32, MemScope::Device, false), CompileOptions::default())
}

#[test]
fn unordered_additions_are_tma_reductions() {
    let cases = [
        (added(DType::F32, MemScope::Device, false), 2),
        (added(DType::BF16, MemScope::Device, false), 2),
        (added(DType::F64, MemScope::Device, false), 0),
        (added(DType::F32, MemScope::Device, true), 3),
    ];
    for (module, count) in cases {
        let compiled = check(&module).pop().unwrap();
        let adds = compiled.text.matches("cp.reduce.async.bulk").count();
        let threads =
            compiled.text.lines().filter(|line| line.contains(" red.") || line.trim().starts_with("red.")).count();
        assert_eq!((adds > 0, threads > 0), (count > 0, count == 0), "{}", compiled.text);
        let kernel = ("added".to_owned(), module, CompileOptions::default());
        each_schedule_of(vec![kernel], |name, info, body, schedule| {
            let count = if name.ends_with("sm_90a") { count } else { 0 };
            let text = schedule.to_text(info.module);
            assert_eq!(sends(schedule), count, "{name}:\n{text}");
            info.verify_schedule(body, schedule).unwrap();
            // Additions have no order, so that earlier stores need only be read. A store waits for
            // completion.
            assert_eq!(text.contains("tma_store_wait\n"), count == 3, "{name}:\n{text}");
        });
    }
}

#[test]
fn one_lane_of_each_warp_issues_its_tma_stores() {
    let text = check(&super::deferred_load::scaled_tiles(128)).pop().unwrap().text;
    let elected = text.find("elect.sync").unwrap_or_else(|| panic!("{text}"));
    let lane = text[elected..].split(['|', ',']).nth(1).unwrap();
    let sent = elected + text[elected..].find("global.shared::cta").expect("a box that leaves");
    let between = &text[elected..sent];
    // Predicates of this lane alone. Further conditions may test the bounds of the tile.
    let mut alone = HashSet::from([lane]);
    for line in between.lines().filter_map(|line| line.trim().strip_prefix("and.pred ")) {
        let words: Vec<&str> = line.trim_end_matches(';').split(", ").collect();
        if words[1..].iter().any(|word| alone.contains(word)) {
            alone.insert(words[0]);
        }
    }
    let branch = between.lines().rev().find(|line| line.contains("bra ")).expect("a branch around the box");
    let guard = branch.trim().trim_start_matches(['@', '!']).split_whitespace().next().unwrap();
    assert!(alone.contains(guard), "{between}");
    assert_eq!(text.matches("elect.sync").count(), 1, "for all of its boxes: {text}");
    for (at, _) in text[elected..].match_indices("cp.async.bulk.wait_group") {
        let before = text[..elected + at].rsplit('\n').next().unwrap();
        assert!(before.trim().is_empty(), "each lane waits: what one sends is its own: {before}");
    }
}
