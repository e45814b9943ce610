//! Finds sequences of ops to strip-mine.
//!
//! A sequence starts with an op on a tile. All tiles in it have the same registers, and no two of
//! its accesses may race. Most sequences end with a store or a reduction, and have no live-out
//! tiles.
//!
//! If whole tiles would fill the registers (`pressure`), a sequence ends before the next op that
//! cannot be strip-mined, and its results are live-out. An example is the work on an MMA result
//! that a TMA store writes.
//!
//! [`StripFinder`] reads the ops once, in order. Then it finds the longest sequence from each op
//! on, in time proportional to the length of the block.

use crate::util::collect::CollectVec as _;
use std::ops::Range;

use rustc_hash::FxHashMap;

use super::eligibility::StripEligibility;
use crate::backend::ptx::layout_inference::ValueOrigin;
use crate::backend::ptx::optimizations::Optimization;
use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::analysis::memory_effects::MemoryEffect;
use crate::backend::ptx::schedule::ir::program::StripRole;
use crate::ir::{OpId, Opcode, Type, Value};
use crate::layout::Layout;

/// Bytes of a strip iteration in the narrowest array that the sequence accesses: two accesses of a
/// thread. Tiles of fewer than two strip iterations are not strip-mined.
const STRIP_BYTES: usize = 32;

/// Bits of the widest element.
const MAX_ELEMENT_BITS: usize = 64;

/// Returns the registers of a strip iteration, if the narrowest array has elements of this number
/// of bits.
const fn registers_per_iteration(bits: usize) -> usize {
    8 * STRIP_BYTES / bits
}

/// Minimum number of bits per element of a live-out tile. Narrower elements are truth values, which
/// do not share a register.
const MIN_ELEMENT_BITS: usize = 8;

/// Role of an op in a sequence.
#[derive(Clone, Copy, Debug, PartialEq)]
enum OpKind {
    /// The op computes on tiles with the registers of this layout (index into `layouts`).
    Elementwise(usize),
    /// The op is a view of the result of the op at this position.
    View(usize),
    /// The op is executed before the first strip iteration.
    Preheader,
    /// The op ends the sequence.
    Barrier,
}

/// An op of the block.
struct OpInfo {
    id: OpId,
    kind: OpKind,
    /// Position of the last earlier op that cannot be in a sequence with this one.
    conflicts_until: Option<usize>,
    /// Position of the last use of its results; `usize::MAX`: also used by other ops than those of
    /// sequences.
    last_use: usize,
    /// Position of the last op on tiles whose result this op reads in the preheader.
    last_strip_input: Option<usize>,
    /// Bits of an element of the array that the op accesses.
    access_bits: Option<usize>,
    /// The op stores or reduces: a sequence can end here.
    can_end: bool,
    /// A sequence ends here at the latest: the result is complete after the last strip iteration.
    must_end: bool,
}

/// Sequences with a common end.
#[derive(Default)]
struct Window {
    start: usize,
    end: usize,
    /// Sequences that start after this op can end later.
    valid_until: usize,
    /// The latest end of a sequence that includes the op, for each op from `start`.
    max_ends: Vec<usize>,
}

/// The ops of a block, with the properties for the search of sequences.
pub struct StripFinder {
    ops: Vec<OpInfo>,
    layouts: Vec<Layout>,
    /// Number of uses of a value by ops on tiles, and the position of the last one.
    uses: FxHashMap<Value, (usize, usize)>,
    window: Window,
    /// No sequence starts before this op: it would have no store, or too few registers for two
    /// iterations.
    min_start: usize,
    /// No sequence with live-out tiles starts before this op.
    min_start_with_live_out: usize,
}

/// A sequence of ops that can be strip-mined.
pub struct StripCandidate<'a> {
    /// The layout of its tiles.
    pub layout: &'a Layout,
    /// Registers of one strip iteration.
    pub registers_per_iteration: usize,
    /// The ops of the sequence in order.
    pub ops: Vec<(OpId, StripRole)>,
    /// Tiles of the sequence that later steps read.
    pub live_out: Vec<Value>,
}

/// Returns true if the registers of both layouts hold the same elements, independent of the shape.
fn has_same_registers(a: &Layout, b: &Layout) -> bool {
    a.num_elements() == b.num_elements() && a.reshape(b.shape()).is_same(b)
}

/// Accesses so far, by memory effect. Accesses of one effect have the same conflicts.
#[derive(Default)]
struct EffectIndex {
    last_by_effect: Vec<(MemoryEffect, usize)>,
}

impl EffectIndex {
    /// Adds an access, and returns the position of the last earlier one that may race with it.
    fn insert(&mut self, effect: MemoryEffect, position: usize) -> Option<usize> {
        let conflict =
            self.last_by_effect.iter().filter(|(earlier, _)| earlier.may_race(&effect)).map(|(_, last)| *last).max();
        match self.last_by_effect.iter_mut().find(|(earlier, _)| *earlier == effect) {
            Some((_, last)) => *last = position,
            None => self.last_by_effect.push((effect, position)),
        }
        conflict
    }
}

/// State of the collection of properties, op by op.
#[derive(Default)]
struct LiveTiles {
    ops: Vec<OpInfo>,
    layouts: Vec<Layout>,
    effects: EffectIndex,
    /// Position of the op on tiles that computed a value or the tile of which it is a view.
    makers: FxHashMap<Value, usize>,
    /// Position of the last op on tiles from which a deferred value is computed.
    deferred_sources: FxHashMap<Value, usize>,
    /// Number of uses of a value by ops on tiles, and the position of the last one.
    uses: FxHashMap<Value, (usize, usize)>,
}

impl KernelInfo<'_> {
    /// Returns the strip finder of the ops of a block. `fetched`: returns true for ops whose tiles
    /// are in stages.
    pub fn strip_finder(&self, ops: &[OpId], fetched: &dyn Fn(OpId) -> bool) -> StripFinder {
        let mut found = LiveTiles::default();
        for (position, &id) in ops.iter().enumerate() {
            self.add_op(id, (position, fetched), &mut found);
        }
        let LiveTiles { ops: mut infos, layouts, uses, .. } = found;
        for info in &mut infos {
            let made = self.strip_results(info.id).iter();
            info.last_use = made.map(|&value| self.last_use(value, &uses)).max().unwrap_or(0);
        }
        StripFinder { ops: infos, layouts, uses, window: Window::default(), min_start: 0, min_start_with_live_out: 0 }
    }

    /// Returns the position of the last use of a value; `usize::MAX` if also other ops than those
    /// of sequences use it.
    fn last_use(&self, value: Value, uses: &FxHashMap<Value, (usize, usize)>) -> usize {
        match (self.uses.count(value), uses.get(&value)) {
            (0, _) => 0,
            (count, Some(&(inside, last))) if count == inside => last,
            _ => usize::MAX,
        }
    }

    /// Returns the results that an op in a sequence computes by strip iteration. A reduction has
    /// none.
    fn strip_results(&self, id: OpId) -> &[Value] {
        let op = self.module.op(id);
        if op.code == Opcode::Reduce { &[] } else { &op.results }
    }

    fn add_op(&self, id: OpId, (position, fetched): (usize, &dyn Fn(OpId) -> bool), found: &mut LiveTiles) {
        let op = self.module.op(id);
        let kind = match self.strip_eligibility(id, fetched) {
            StripEligibility::Elementwise(layout) => {
                let known = found.layouts.iter().rposition(|other| has_same_registers(&layout, other));
                OpKind::Elementwise(known.unwrap_or_else(|| {
                    found.layouts.push(layout);
                    found.layouts.len() - 1
                }))
            }
            StripEligibility::View => {
                found.makers.get(&op.operands[0]).map_or(OpKind::Preheader, |&maker| OpKind::View(maker))
            }
            StripEligibility::Scalar => OpKind::Preheader,
            StripEligibility::Barrier => OpKind::Barrier,
        };
        let reduces = op.code == Opcode::Reduce && kind != OpKind::Barrier;
        let mut info = OpInfo {
            id,
            kind,
            conflicts_until: None,
            last_use: 0,
            last_strip_input: None,
            access_bits: None,
            can_end: reduces,
            must_end: reduces,
        };
        let maker = match kind {
            OpKind::Elementwise(_) => Some(position),
            OpKind::View(maker) => Some(maker),
            OpKind::Preheader | OpKind::Barrier => None,
        };
        if let Some(maker) = maker {
            let tiles = op.operands.iter().filter(|&&v| matches!(self.module.ty(v), Type::Tile { .. }));
            for operand in tiles.filter(|&&v| self.inference.num_elements(v) > 1) {
                if found.makers.contains_key(operand) {
                    let (count, last) = found.uses.entry(*operand).or_default();
                    (*count, *last) = (*count + 1, position);
                } else {
                    info.conflicts_until = info.conflicts_until.max(found.deferred_sources.get(operand).copied());
                }
            }
            found.makers.extend(self.strip_results(id).iter().map(|&result| (result, maker)));
        } else {
            info.last_strip_input = op.operands.iter().filter_map(|operand| found.makers.get(operand)).max().copied();
            self.add_deferred_sources(id, found);
        }
        if matches!(kind, OpKind::Elementwise(_))
            && let Some(effect) = self.memory_effect_of(id)
        {
            info.conflicts_until = info.conflicts_until.max(found.effects.insert(effect, position));
            let loaded = op.results.first().filter(|_| op.code == Opcode::LoadView).copied();
            let tile = loaded.unwrap_or_else(|| op.group(0)[0]);
            info.access_bits = Some(self.element_type(tile).storage_bits() as usize);
            info.can_end = op.code == Opcode::StoreView;
        }
        found.ops.push(info);
    }

    /// Adds the deferred results of an op, with the last source of its operands.
    fn add_deferred_sources(&self, id: OpId, found: &mut LiveTiles) {
        let op = self.module.op(id);
        let tiles = op.results.iter().filter(|&&v| matches!(self.module.ty(v), Type::Tile { .. }));
        for &result in tiles.filter(|&&v| self.inference.origin(v) != ValueOrigin::Register) {
            let of =
                |operand: &Value| found.makers.get(operand).or_else(|| found.deferred_sources.get(operand)).copied();
            if let Some(last) = op.operands.iter().filter_map(of).max() {
                found.deferred_sources.insert(result, last);
            }
        }
    }
}

impl StripFinder {
    /// Returns the sequence that starts with the op at this position, if there is one.
    pub fn at(&mut self, info: &KernelInfo<'_>, start: usize) -> Option<StripCandidate<'_>> {
        if !info.is_enabled(Optimization::StripMine) {
            return None;
        }
        let (strip_registers, end) = match self.find_closed(start) {
            Some(found) => found,
            None => self.find_with_live_out(info, start)?,
        };
        let OpKind::Elementwise(class) = self.ops[start].kind else { return None };
        let part = |position: usize| match self.ops[position].kind {
            OpKind::Elementwise(_) => StripRole::Body,
            OpKind::View(maker) if maker >= start => StripRole::View,
            OpKind::View(_) | OpKind::Preheader | OpKind::Barrier => StripRole::Preheader,
        };
        let strip_ops = (start..end).map(|position| (self.ops[position].id, part(position))).collect_vec();
        let live_out = self.live_out(info, start..end);
        Some(StripCandidate {
            layout: &self.layouts[class],
            registers_per_iteration: strip_registers,
            ops: strip_ops,
            live_out,
        })
    }

    /// Returns the registers of a strip iteration and the end of the sequence from `start` that
    /// ends with a store or a reduction and has no live-out tiles.
    fn find_closed(&mut self, start: usize) -> Option<(usize, usize)> {
        let OpKind::Elementwise(class) = self.ops[start].kind else { return None };
        let registers = self.layouts[class].num_registers();
        if registers < 2 * registers_per_iteration(MAX_ELEMENT_BITS) || start < self.min_start {
            return None;
        }
        let limit = self.max_end(start);
        let Some((end, narrowest)) = self.longest_end(start, limit) else {
            self.min_start = limit;
            return None;
        };
        let strip_registers = registers_per_iteration(narrowest);
        if registers < 2 * strip_registers {
            // Each later start up to the last access to the narrowest array has the same strip
            // iteration.
            let narrow = |info: &OpInfo| info.access_bits == Some(narrowest);
            let last = (start..end).rev().find(|&position| narrow(&self.ops[position]));
            self.min_start = last.unwrap_or(start) + 1;
            return None;
        }
        Some((strip_registers, end))
    }

    /// Returns the same for a sequence with live-out tiles, if whole tiles would fill the
    /// registers.
    fn find_with_live_out(&mut self, info: &KernelInfo<'_>, start: usize) -> Option<(usize, usize)> {
        let OpKind::Elementwise(class) = self.ops[start].kind else { return None };
        if start < self.min_start_with_live_out {
            return None;
        }
        let max_end = self.max_end_with_live_out(start);
        let end = (start..max_end).rev().find(|&position| self.is_in_strip(position, start))? + 1;
        self.min_start_with_live_out = max_end;
        let live_out = self.live_out(info, start..end);
        let block = info.regions.block_of(self.ops[start].id)?;
        let inside = (start..end).filter(|&position| self.is_in_strip(position, start));
        let ops: Vec<OpId> = inside.clone().map(|position| self.ops[position].id).collect_vec();
        let accesses = inside.filter_map(|position| self.ops[position].access_bits);
        let live_out_bits = live_out.iter().map(|&value| info.element_type(value).storage_bits() as usize);
        let narrowest = accesses.chain(live_out_bits).min()?.clamp(MIN_ELEMENT_BITS, MAX_ELEMENT_BITS);
        let layout = &self.layouts[class];
        let enough = layout.num_registers() >= 2 * registers_per_iteration(narrowest) && !live_out.is_empty();
        let is_profitable = enough && info.is_profitable((block, layout), &ops, &live_out);
        is_profitable.then_some((registers_per_iteration(narrowest), end))
    }

    /// Returns the tiles of a sequence that later ops or other regions use, directly or through
    /// views.
    fn live_out(&self, info: &KernelInfo<'_>, strip: Range<usize>) -> Vec<Value> {
        let mut live_out: Vec<Value> = Vec::new();
        for position in strip.clone().filter(|&position| self.is_in_strip(position, strip.start)) {
            for &value in info.strip_results(self.ops[position].id) {
                let is_tile = matches!(info.module.ty(value), Type::Tile { .. });
                if is_tile && info.last_use(value, &self.uses) >= strip.end {
                    let made = info.through_views(value);
                    if !live_out.contains(&made) {
                        live_out.push(made);
                    }
                }
            }
        }
        live_out
    }

    /// Returns the latest end of a sequence from `start` that has live-out tiles.
    fn max_end_with_live_out(&self, start: usize) -> usize {
        let kind = self.ops[start].kind;
        for (position, info) in self.ops.iter().enumerate().skip(start) {
            let differs = matches!(info.kind, OpKind::Elementwise(_)) && info.kind != kind;
            let bounds = [info.conflicts_until.filter(|_| self.is_in_strip(position, start)), info.last_strip_input];
            if info.kind == OpKind::Barrier || differs || bounds.iter().flatten().any(|&before| before >= start) {
                return position;
            }
            if info.must_end {
                return position + 1;
            }
        }
        self.ops.len()
    }

    /// Returns true if the op computes on tiles of a sequence from `start`.
    fn is_in_strip(&self, position: usize, start: usize) -> bool {
        match self.ops[position].kind {
            OpKind::Elementwise(_) => true,
            OpKind::View(maker) => maker >= start,
            OpKind::Preheader | OpKind::Barrier => false,
        }
    }

    /// Returns the latest end of a sequence from `start` that has no live-out tiles.
    fn max_end(&mut self, start: usize) -> usize {
        let Window { start: first, end, valid_until: until, .. } = self.window;
        if !(first..end).contains(&start) || start > until {
            self.window = self.compute_window(start);
        }
        self.window.max_ends[start - self.window.start]
    }

    fn compute_window(&self, start: usize) -> Window {
        let kind = self.ops[start].kind;
        let (mut end, mut until) = (start, usize::MAX);
        while let Some(info) = self.ops.get(end) {
            let differs = matches!(info.kind, OpKind::Elementwise(_)) && info.kind != kind;
            if info.kind == OpKind::Barrier || differs {
                break;
            }
            if let Some(conflict) =
                info.conflicts_until.filter(|&conflict| conflict >= start && self.is_in_strip(end, start))
            {
                until = conflict;
                break;
            }
            end += 1;
            if info.must_end {
                break;
            }
        }
        let mut limits = vec![end; end - start];
        let mut limit = end;
        for position in (start..end).rev() {
            if self.is_in_strip(position, start) && self.ops[position].last_use >= limit {
                limit = position;
            }
            limits[position - start] = limit;
        }
        Window { start, end, valid_until: until, max_ends: limits }
    }

    /// Returns the longest sequence from `start` that ends with a store or a reduction before
    /// `limit`: its end, and the bits of the narrowest elements that it accesses.
    fn longest_end(&self, start: usize, limit: usize) -> Option<(usize, usize)> {
        let (mut last_use, mut narrowest, mut found) = (0, MAX_ELEMENT_BITS, None);
        for position in (start..limit).filter(|&position| self.is_in_strip(position, start)) {
            let info = &self.ops[position];
            last_use = last_use.max(info.last_use);
            narrowest = narrowest.min(info.access_bits.unwrap_or(MAX_ELEMENT_BITS));
            if info.can_end && last_use <= position {
                found = Some((position + 1, narrowest));
            }
        }
        found
    }
}
