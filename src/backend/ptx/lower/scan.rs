//! Scans: serially along the registers of a thread, across lanes by shuffles, across warps through shared memory.
//!
//! A *run* is what a thread holds of neighbouring elements. Each thread scans its runs and is left with their
//! totals; lanes scan those; where the axis goes on over warps (and over registers above them), the totals of the
//! lanes meet in shared memory (`scan_warps`). Then each run knows what comes before it, and combines that with its
//! elements. Elements are combined in order, the earlier ones on
//! the left; the identity takes no part.

use super::{Lowered, Lowering, Tile};
use crate::backend::ptx::isa::inst::{Cmp, Operand, Reg, ShflMode, Special, Ty};
use crate::backend::ptx::layout_inference::{AxisBit, AxisBits, ScanOrder};
use crate::backend::ptx::scalar::repr;
use crate::dtype::DType;
use crate::ir::{BlockId, OpId};
use crate::layout::Layout;

/// Is there something, in this thread?
#[derive(Clone, Copy)]
pub enum Holds {
    /// In none.
    Never,
    /// In all threads.
    Always,
    /// Where this is true.
    If(Reg),
}

/// A value of each operand that may not be there.
pub struct Part {
    /// One for each operand.
    pub values: Vec<Operand>,
    /// Are they there?
    pub holds: Holds,
}

/// One scan on its way.
pub struct Scan {
    body: BlockId,
    /// Element types of the operands.
    pub dtypes: Vec<DType>,
    /// The layout of all of them.
    pub layout: Layout,
    /// The axis.
    pub axis: AxisBits,
    /// Which bits run along it.
    pub order: ScanOrder,
    /// From the last element on?
    pub reverse: bool,
    /// The slots of each operand.
    slots: Vec<Vec<Operand>>,
}

/// A run: the slots in the order of the scan, and its place.
pub struct Run {
    slots: Vec<usize>,
    /// Register bits that do not belong to the axis.
    pub row: usize,
    /// Bits of the outer coordinate that registers give.
    pub outer: u32,
}

impl Scan {
    fn at(&self, slot: usize) -> Vec<Operand> {
        self.slots.iter().map(|slots| slots[slot]).collect()
    }

    fn put(&mut self, slot: usize, values: &[Operand]) {
        for (slots, &value) in self.slots.iter_mut().zip(values) {
            slots[slot] = value;
        }
    }

    /// The register bits above the runs, with their position in the outer coordinate.
    fn outer_registers(&self) -> Vec<(usize, usize)> {
        let outer = self.order.outer.iter().enumerate();
        outer
            .filter_map(|(position, bit)| if let AxisBit::Register(r) = bit { Some((*r, position)) } else { None })
            .collect()
    }

    /// All runs: those of a row one after another, in the order of the scan.
    fn runs(&self) -> Vec<Run> {
        let images = self.layout.register_images();
        let outer = self.outer_registers();
        let rows: Vec<usize> = (0..images.len()).filter(|&bit| self.axis.coordinate(images[bit]) == 0).collect();
        let spread = |number: usize, bits: &mut dyn Iterator<Item = usize>| -> usize {
            bits.enumerate().map(|(i, bit)| (number >> i & 1) << bit).sum()
        };
        let mut runs = Vec::new();
        for row in 0..1usize << rows.len() {
            for part in 0..1usize << outer.len() {
                let part = if self.reverse { (1 << outer.len()) - 1 - part } else { part };
                let base = spread(row, &mut rows.iter().copied()) | spread(part, &mut outer.iter().map(|(r, _)| *r));
                let length = 1usize << self.order.inner.len();
                let mut slots: Vec<usize> =
                    (0..length).map(|i| base | spread(i, &mut self.order.inner.iter().copied())).collect();
                if self.reverse {
                    slots.reverse();
                }
                runs.push(Run { slots, row, outer: spread(part, &mut outer.iter().map(|(_, p)| *p)) as u32 });
            }
        }
        runs
    }
}

impl Lowering<'_> {
    /// `scan`.
    pub fn scan(&mut self, id: OpId) -> Lowered {
        let module = self.module;
        let op = module.op(id);
        let layout = self.context.inference.accesses[&id].clone();
        let axis = op.dim() as usize;
        let order = ScanOrder::of(&layout, axis).ok_or("a scan in a layout without order")?;
        let mut scan = Scan {
            body: op.regions[0],
            dtypes: op.operands.iter().map(|&v| self.context.element_type(v)).collect(),
            axis: AxisBits::of(layout.shape(), axis),
            order,
            reverse: op.reverse(),
            slots: Vec::with_capacity(op.operands.len()),
            layout,
        };
        for &operand in &op.operands {
            scan.slots.push(self.get(operand, &scan.layout)?.to_vec());
        }
        let runs = scan.runs();
        let mut totals = Vec::with_capacity(runs.len());
        for run in &runs {
            let mut total = scan.at(run.slots[0]);
            for &slot in &run.slots[1..] {
                total = self.combine(scan.body, &total, &scan.at(slot))?;
                scan.put(slot, &total);
            }
            totals.push(total);
        }
        let (first, lanes) = scan.order.lanes;
        self.scan_lanes(&scan, &mut totals, lanes)?;
        let before_lane: Vec<Vec<Operand>> = match lanes {
            0 => vec![Vec::new(); totals.len()],
            _ => {
                let source = self.neighbour(first, lanes, scan.reverse);
                totals.iter().map(|total| self.exchanged(&scan.dtypes, total, source)).collect()
            }
        };
        let before_run = match scan.order.meets() {
            false => self.carried(&scan, &runs, &totals)?,
            true => self.carried_through_shared(&scan, &runs, &totals)?,
        };
        let lane_holds = match lanes {
            0 => Holds::Never,
            _ => {
                let mask = ((1u32 << lanes) - 1) << first;
                self.thread_field(mask, Cmp::Ne, if scan.reverse { mask } else { 0 })
            }
        };
        for ((run, lane), outer) in runs.iter().zip(before_lane).zip(before_run) {
            let before = self.joined(&scan, outer, Part { values: lane, holds: lane_holds })?;
            for &slot in &run.slots {
                let own = Part { values: scan.at(slot), holds: Holds::Always };
                let joined = self.joined(&scan, Part { values: before.values.clone(), holds: before.holds }, own)?;
                scan.put(slot, &joined.values);
            }
        }
        for (&result, slots) in op.results.iter().zip(scan.slots) {
            self.tiles[result.index()] = Some(Tile { layout: scan.layout.clone(), slots: slots.into() });
        }
        Ok(())
    }

    /// What both parts are together, in this order.
    pub fn joined(&mut self, scan: &Scan, left: Part, right: Part) -> Lowered<Part> {
        let classes: Vec<_> = scan.dtypes.iter().map(|&dtype| repr::class(dtype)).collect();
        let either = |this: &mut Self, pred: Reg, yes: &[Operand], no: &[Operand]| -> Vec<Operand> {
            let pairs = yes.iter().zip(no).zip(&classes);
            pairs.map(|((&yes, &no), &class)| this.b.select(class, pred, yes, no)).collect()
        };
        Ok(match (left.holds, right.holds) {
            (Holds::Never, _) => right,
            (_, Holds::Never) => left,
            (left_holds, right_holds) => {
                let mut values = self.combine(scan.body, &left.values, &right.values)?;
                if let Holds::If(pred) = left_holds {
                    values = either(self, pred, &values, &right.values);
                }
                if let Holds::If(pred) = right_holds {
                    values = either(self, pred, &values, &left.values);
                }
                let holds = match (left_holds, right_holds) {
                    (Holds::If(a), Holds::If(b)) => Holds::If(self.b.or(Ty::Pred, a, b).reg()),
                    _ => Holds::Always,
                };
                Part { values, holds }
            }
        })
    }

    /// The predicate that compares some bits of the thread number.
    pub fn thread_field(&mut self, mask: u32, cmp: Cmp, value: u32) -> Holds {
        let tid = self.b.special(Special::TidX);
        let field = self.b.and(Ty::B32, tid, mask);
        Holds::If(self.b.setp(cmp, Ty::B32, field, value))
    }

    /// The values of another lane.
    pub fn exchanged(&mut self, dtypes: &[DType], values: &[Operand], lane: Operand) -> Vec<Operand> {
        let mut results = Vec::with_capacity(values.len());
        for (&value, &dtype) in values.iter().zip(dtypes) {
            let words = self.pack_words(dtype, &[value]);
            let words: Vec<Operand> = words.into_iter().map(|word| self.b.shfl(ShflMode::Idx, word, lane)).collect();
            results.push(self.unpack_words(dtype, &words, 1)[0]);
        }
        results
    }

    /// The lane number.
    pub fn lane(&mut self) -> Operand {
        let tid = self.b.special(Special::TidX);
        self.b.and(Ty::B32, tid, 31u32)
    }

    /// The lane before this one along the axis (behind it, if reversed); any for the first one.
    fn neighbour(&mut self, first: usize, count: usize, reverse: bool) -> Operand {
        let lane = self.lane();
        let step = 1u32 << first;
        let moved = if reverse { self.b.add(Ty::U32, lane, step) } else { self.b.sub(Ty::U32, lane, step) };
        self.with_lane_field(lane, moved, first, count)
    }

    /// `lane` with the field of the lanes along the axis taken from `other`.
    pub fn with_lane_field(&mut self, lane: Operand, other: Operand, first: usize, count: usize) -> Operand {
        let mask = ((1u32 << count) - 1) << first;
        let taken = self.b.and(Ty::B32, other, mask);
        let kept = self.b.and(Ty::B32, lane, 31 & !mask);
        self.b.or(Ty::B32, taken, kept)
    }

    /// Inclusive scans of one value a lane, over the `count` lowest lane bits along the axis.
    pub fn scan_lanes(&mut self, scan: &Scan, values: &mut [Vec<Operand>], count: usize) -> Lowered {
        let first = scan.order.lanes.0;
        let classes: Vec<_> = scan.dtypes.iter().map(|&dtype| repr::class(dtype)).collect();
        for step in 0..count {
            // The half before this one ends with its last lane.
            let (bit, below) = (1u32 << (first + step), ((1u32 << step) - 1) << first);
            let lane = self.lane();
            let source = if scan.reverse {
                let high = self.b.and(Ty::B32, lane, !below);
                self.b.or(Ty::B32, high, bit)
            } else {
                let low = self.b.or(Ty::B32, lane, below);
                self.b.and(Ty::B32, low, !bit)
            };
            let Holds::If(takes) = self.thread_field(bit, if scan.reverse { Cmp::Eq } else { Cmp::Ne }, 0) else {
                unreachable!("a predicate")
            };
            for value in values.iter_mut() {
                let theirs = self.exchanged(&scan.dtypes, value, source);
                let combined = self.combine(scan.body, &theirs, value)?;
                for ((mine, &class), &combined) in value.iter_mut().zip(&classes).zip(&combined) {
                    *mine = self.b.select(class, takes, combined, *mine);
                }
            }
        }
        Ok(())
    }

    /// What comes before each run where the axis goes on over registers alone: the runs before it, of all lanes.
    fn carried(&mut self, scan: &Scan, runs: &[Run], totals: &[Vec<Operand>]) -> Lowered<Vec<Part>> {
        let (first, lanes) = scan.order.lanes;
        let mut parts: Vec<Part> = Vec::with_capacity(runs.len());
        let mut before = Part { values: Vec::new(), holds: Holds::Never };
        for (position, total) in totals.iter().enumerate() {
            if position == 0 || runs[position].row != runs[position - 1].row {
                before = Part { values: Vec::new(), holds: Holds::Never };
            }
            parts.push(Part { values: before.values.clone(), holds: before.holds });
            let goes_on = runs.get(position + 1).is_some_and(|next| next.row == runs[position].row);
            if goes_on {
                let last = match lanes {
                    0 => total.clone(),
                    _ => {
                        let lane = self.lane();
                        let end = Operand::Imm(if scan.reverse { 0 } else { 31 });
                        let source = self.with_lane_field(lane, end, first, lanes);
                        self.exchanged(&scan.dtypes, total, source)
                    }
                };
                before = self.joined(scan, before, Part { values: last, holds: Holds::Always })?;
            }
        }
        Ok(parts)
    }
}
