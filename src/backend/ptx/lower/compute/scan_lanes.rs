//! Scans across lanes, and partial results of a scan.

use crate::backend::ptx::isa::inst::{Cmp, Operand, Reg, ShflMode, Special, Ty};
use crate::backend::ptx::layout_inference::{AxisBit, AxisBits, ScanOrder};
use crate::backend::ptx::lower::{Lowered, Lowering};
use crate::backend::ptx::scalar::repr;
use crate::dtype::DType;
use crate::ir::BlockId;
use crate::layout::Layout;
use crate::util::collect::CollectVec as _;

/// Condition under which a partial result exists in a thread.
#[derive(Clone, Copy)]
pub enum Predicate {
    /// In no thread.
    Never,
    /// In all threads.
    Always,
    /// In threads where this is true.
    Reg(Reg),
}

/// A partial result that may not exist.
pub struct ScanPartial {
    /// One value for each operand.
    pub values: Vec<Operand>,
    /// Condition under which the values exist.
    pub holds: Predicate,
}

/// A scan that is being lowered.
pub struct Scan {
    pub body: BlockId,
    /// Element types of the operands.
    pub dtypes: Vec<DType>,
    /// Layout of all operands.
    pub layout: Layout,
    /// The axis.
    pub axis: AxisBits,
    /// Bits of register, lane and warp numbers along the axis.
    pub order: ScanOrder,
    /// The scan starts at the last element.
    pub reverse: bool,
    /// Registers of each operand.
    pub regs: Vec<Vec<Operand>>,
}

/// A chain: its registers in scan order, and its position.
pub struct ScanChain {
    pub regs: Vec<usize>,
    /// Register bits off the axis.
    pub row: usize,
    /// Register bits of the outer coordinate.
    pub outer: u32,
}

impl Scan {
    pub fn at(&self, register: usize) -> Vec<Operand> {
        self.regs.iter().map(|regs| regs[register]).collect_vec()
    }

    pub fn put(&mut self, register: usize, values: &[Operand]) {
        for (regs, &value) in self.regs.iter_mut().zip(values) {
            regs[register] = value;
        }
    }

    /// Returns the register bits of the outer coordinate, with their positions.
    fn outer_registers(&self) -> Vec<(usize, usize)> {
        let outer = self.order.outer.iter().enumerate();
        outer
            .filter_map(|(position, bit)| if let AxisBit::Register(r) = bit { Some((*r, position)) } else { None })
            .collect_vec()
    }

    /// Returns all chains: those of a row are consecutive, in scan order.
    pub fn runs(&self) -> Vec<ScanChain> {
        let bases = self.layout.register_bases();
        let outer = self.outer_registers();
        let rows: Vec<usize> = (0..bases.len()).filter(|&bit| self.axis.coordinate(bases[bit]) == 0).collect_vec();
        let spread = |number: usize, bits: &mut dyn Iterator<Item = usize>| -> usize {
            bits.enumerate().map(|(i, bit)| (number >> i & 1) << bit).sum()
        };
        let mut runs = Vec::new();
        for row in 0..1usize << rows.len() {
            for part in 0..1usize << outer.len() {
                let part = if self.reverse { (1 << outer.len()) - 1 - part } else { part };
                let base = spread(row, &mut rows.iter().copied()) | spread(part, &mut outer.iter().map(|(r, _)| *r));
                let length = 1usize << self.order.inner.len();
                let mut regs: Vec<usize> =
                    (0..length).map(|i| base | spread(i, &mut self.order.inner.iter().copied())).collect_vec();
                if self.reverse {
                    regs.reverse();
                }
                runs.push(ScanChain { regs, row, outer: spread(part, &mut outer.iter().map(|(_, p)| *p)) as u32 });
            }
        }
        runs
    }
}

impl Lowering<'_> {
    /// Combines two partial results in this order.
    pub fn combine_partials(&mut self, scan: &Scan, left: ScanPartial, right: ScanPartial) -> Lowered<ScanPartial> {
        let classes: Vec<_> = scan.dtypes.iter().map(|&dtype| repr::class(dtype)).collect_vec();
        let either = |this: &mut Self, pred: Reg, yes: &[Operand], no: &[Operand]| -> Vec<Operand> {
            let pairs = yes.iter().zip(no).zip(&classes);
            pairs.map(|((&yes, &no), &class)| this.b.select(class, pred, yes, no)).collect_vec()
        };
        Ok(match (left.holds, right.holds) {
            (Predicate::Never, _) => right,
            (_, Predicate::Never) => left,
            (left_holds, right_holds) => {
                let mut values = self.combine(scan.body, &left.values, &right.values)?;
                if let Predicate::Reg(pred) = left_holds {
                    values = either(self, pred, &values, &right.values);
                }
                if let Predicate::Reg(pred) = right_holds {
                    values = either(self, pred, &values, &left.values);
                }
                let holds = match (left_holds, right_holds) {
                    (Predicate::Reg(a), Predicate::Reg(b)) => Predicate::Reg(self.b.or(Ty::Pred, a, b).reg()),
                    _ => Predicate::Always,
                };
                ScanPartial { values, holds }
            }
        })
    }

    /// Returns a predicate that compares a bit field of the thread number.
    pub fn thread_field(&mut self, mask: u32, cmp: Cmp, value: u32) -> Predicate {
        let tid = self.b.special(Special::TidX);
        let field = self.b.and(Ty::B32, tid, mask);
        Predicate::Reg(self.b.setp(cmp, Ty::B32, field, value))
    }

    /// Returns the values of another lane.
    pub fn read_lane(&mut self, dtypes: &[DType], values: &[Operand], lane: Operand) -> Vec<Operand> {
        let mut results = Vec::with_capacity(values.len());
        for (&value, &dtype) in values.iter().zip(dtypes) {
            let words = self.pack_words(dtype, &[value]);
            let words: Vec<Operand> =
                words.into_iter().map(|word| self.b.shfl(ShflMode::Idx, word, lane)).collect_vec();
            results.push(self.unpack_words(dtype, &words, 1)[0]);
        }
        results
    }

    /// Replaces the lane bits along the axis by those of `other`.
    pub fn with_lane_field(&mut self, lane: Operand, other: Operand, first: usize, count: usize) -> Operand {
        let mask = ((1u32 << count) - 1) << first;
        let taken = self.b.and(Ty::B32, other, mask);
        let kept = self.b.and(Ty::B32, lane, 31 & !mask);
        self.b.or(Ty::B32, taken, kept)
    }

    /// Emits inclusive scans of one value per lane, over the `count` lowest lane bits along the
    /// axis.
    pub fn scan_lanes(&mut self, scan: &Scan, values: &mut [Vec<Operand>], count: usize) -> Lowered {
        let first = scan.order.lanes.0;
        let classes: Vec<_> = scan.dtypes.iter().map(|&dtype| repr::class(dtype)).collect_vec();
        for step in 0..count {
            // The last lane of the lower half has its total.
            let (bit, below) = (1u32 << (first + step), ((1u32 << step) - 1) << first);
            let lane = self.lane();
            let source = if scan.reverse {
                let high = self.b.and(Ty::B32, lane, !below);
                self.b.or(Ty::B32, high, bit)
            } else {
                let low = self.b.or(Ty::B32, lane, below);
                self.b.and(Ty::B32, low, !bit)
            };
            let Predicate::Reg(takes) = self.thread_field(bit, if scan.reverse { Cmp::Eq } else { Cmp::Ne }, 0) else {
                unreachable!("a predicate")
            };
            for value in values.iter_mut() {
                let theirs = self.read_lane(&scan.dtypes, value, source);
                let combined = self.combine(scan.body, &theirs, value)?;
                for ((mine, &class), &combined) in value.iter_mut().zip(&classes).zip(&combined) {
                    *mine = self.b.select(class, takes, combined, *mine);
                }
            }
        }
        Ok(())
    }
}
