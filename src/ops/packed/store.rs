//! Stores to packed arrays: codes are packed into words.

use super::bits::Bits;
use super::word_packing::Grouping;
use super::words::{Source, word_type};
use crate::dtype::DType;
use crate::element::Element;
use crate::ir::op_table::Effect;
use crate::ir::{Attr, CmpPred, Opcode, Overflow, Sign, Type, Value};
use crate::ops::memory::access_options::Access;
use crate::ops::reduce::combiner::ByOp;
use crate::ops::support::expr_builder::ExprBuilder;
use crate::ops::support::tile_index::Component;
use crate::tile::{Handle, Scalar, Trace, ValueHandle, record};
use crate::util::collect::CollectVec as _;

/// A store to a packed array.
pub struct Target {
    pub source: Source,
    /// The extent of rows, if words contain bits after the end of a row.
    pub extent: Option<Scalar<i32>>,
}

/// Elements that are joined at a time if the width does not divide a word.
const RUN: u32 = 8;

impl Target {
    /// Stores a tile.
    #[track_caller]
    pub fn store(&self, index: &[Component], bits: Bits) {
        let (width, place) = (self.source.coded.bits, self.source.place);
        let start = record(|t| {
            let shape = t.shape_of_bits(bits);
            let grouping = self.source.grouping(t, index, &shape)?;
            if !t.admits(place, Effect::Write, shape.len()) {
                return None;
            }
            let codes = t.low_bits(place, bits, width)?;
            let codes = self.inside(t, codes, index, &shape)?;
            Some((grouping, shape, codes))
        });
        let Some((grouping, shape, codes)) = start else { return };
        let words = match grouping.words {
            1 => vec![self.joined(codes, grouping.elements, DType::I32, &shape)],
            _ => self.words_of_runs(codes, grouping, &shape),
        };
        record(|t| {
            t.at(place);
            let Some(array) = self.source.words(t, grouping) else { return };
            let (piece, indices) = Source::pieces(grouping, index, &shape);
            let access = Access::default();
            let tile_access = self.source.tile_access(array, grouping.unit, &piece, &access, None);
            for (index, word) in indices.iter().zip(words) {
                let Some(word) = word.and_then(|word| t.check_usable(word, place)) else { continue };
                let value = t.as_words(word, word_type(grouping.unit), &piece);
                let raw = t.raw(value);
                t.store(&tile_access, index, raw);
            }
        });
    }

    /// The codes, set to 0 after the end of the rows.
    fn inside(&self, t: &mut Trace, codes: Value, index: &[Component], shape: &[i64]) -> Option<Value> {
        let Some(extent) = self.extent else { return Some(codes) };
        let place = self.source.place;
        let last = shape.len() - 1;
        let extent = t.check_usable(extent.raw(), place)?;
        let extent = t.extended(extent, Sign::Signed, DType::I64);
        let start = t.scaled_index(place, index[last].number(), shape[last])?;
        let start = t.extended_to_i64(start);
        let positions = t.positions_from(start, shape[last]);
        let ends = t.stretch(extent, &[shape[last]]);
        let attrs = vec![Attr::CmpPred(CmpPred::Lt), Attr::Sign(Sign::Signed)];
        let mask = t.put(Opcode::CmpI, &[positions, ends], attrs, DType::I1, &[shape[last]]);
        let mut thin = vec![1; shape.len()];
        thin[last] = shape[last];
        let mask = if thin.len() == 1 { mask } else { t.put(Opcode::Reshape, &[mask], vec![], DType::I1, &thin) };
        let mask = t.stretch(mask, shape);
        let zero = t.splat(DType::I32, 0, shape);
        Some(t.put(Opcode::Select, &[mask, codes, zero], vec![], DType::I32, shape))
    }

    /// Joins runs of `elements` adjacent codes, the first one in the low bits, as i32 or i64.
    fn joined(&self, codes: Value, elements: u32, dtype: DType, shape: &[i64]) -> Option<ValueHandle> {
        if elements == 1 {
            return Some(record(|t| t.raw(codes)));
        }
        let last = shape.len() - 1;
        let mut apart = shape.to_vec();
        apart[last] /= i64::from(elements);
        let whole = apart.clone();
        apart.push(elements.into());
        let width = self.source.coded.bits;
        let moved = record(|t| {
            let mut value = t.put(Opcode::Reshape, &[codes], vec![], DType::I32, &apart);
            if dtype != DType::I32 {
                value = t.put(Opcode::ExtI, &[value], vec![Attr::Sign(Sign::Unsigned)], dtype, &apart);
            }
            let amounts: Vec<u32> = (0..elements).map(|element| element * width).collect_vec();
            let amounts = t.pattern(&amounts, dtype, &apart);
            let moved = ExprBuilder::new(t, dtype, false, &apart).shl(value, amounts);
            t.raw(moved)
        });
        let joined = match dtype {
            DType::I64 => or_along(moved, last + 1, 0i64),
            _ => or_along(moved, last + 1, 0i32),
        };
        record(|t| {
            let value = t.check_usable(joined, self.source.place)?;
            let value = t.put(Opcode::Reshape, &[value], vec![], dtype, &whole);
            Some(t.raw(value))
        })
    }

    /// Builds the words of groups with several words from runs.
    fn words_of_runs(&self, codes: Value, grouping: Grouping, shape: &[i64]) -> Vec<Option<ValueHandle>> {
        let run_bits = (RUN * self.source.coded.bits) as i32;
        let dtype = if run_bits <= 32 { DType::I32 } else { DType::I64 };
        let runs = self.joined(codes, RUN, dtype, shape);
        let count = grouping.elements / RUN;
        let last = shape.len() - 1;
        record(|t| {
            let Some(runs) = runs.and_then(|runs| t.check_usable(runs, self.source.place)) else { return vec![] };
            let mut piece = shape.to_vec();
            piece[last] = grouping.groups;
            piece.push(1);
            let mut apart = piece.clone();
            apart[last + 1] = count.into();
            let runs = t.put(Opcode::Reshape, &[runs], vec![], dtype, &apart);
            let parts: Vec<Value> = (0..count).map(|number| t.part_of_group(runs, number, dtype, &piece)).collect_vec();
            let word = |t: &mut Trace, word: u32| {
                let mut c = ExprBuilder::new(t, dtype, false, &piece);
                let mut sum: Option<Value> = None;
                for (number, &part) in (0i32..).zip(&parts) {
                    let distance = number * run_bits - (word * grouping.unit) as i32;
                    if distance >= grouping.unit as i32 || distance <= -run_bits {
                        continue;
                    }
                    let amount = c.bits(distance.unsigned_abs().into());
                    let moved = match distance {
                        0 => part,
                        1.. => c.shl(part, amount),
                        _ => c.shr(part, amount),
                    };
                    sum = Some(sum.map_or(moved, |sum| c.or(sum, moved)));
                }
                sum
            };
            let words: Vec<Option<Value>> = (0..grouping.words).map(|number| word(t, number)).collect_vec();
            words.into_iter().map(|word| word.map(|word| t.raw(word))).collect_vec()
        })
    }
}

/// The bitwise or of all elements along an axis.
#[track_caller]
fn or_along<T: Element>(tile: ValueHandle, axis: usize, zero: T) -> ValueHandle {
    let by = ByOp { name: "store", code: Opcode::OrI, attrs: &[], identity: zero };
    by.fold("the packing of a `store`", |fold| fold.reduce(&[tile], vec![axis])[0])
}

impl Trace {
    /// Extracts one element of each group.
    fn part_of_group(&mut self, groups: Value, number: u32, dtype: DType, shape: &[i64]) -> Value {
        if self.builder.module.shape(groups) == shape {
            return groups;
        }
        let mut index = vec![self.splat(DType::I32, 0, &[]); shape.len()];
        index[shape.len() - 1] = self.splat(DType::I32, number.into(), &[]);
        let ty = self.builder.module.intern(Type::tile(dtype, shape));
        self.emit(Opcode::Extract, &[&[groups], &index], vec![], vec![], &[ty])[0]
    }

    /// Sign-extends an i64 or i32 scalar to i64.
    fn extended_to_i64(&mut self, value: Value) -> Value {
        match self.builder.module.dtype(value) {
            DType::I64 => value,
            _ => self.extended(value, Sign::Signed, DType::I64),
        }
    }

    /// Truncates i32 or i64 elements to words.
    fn as_words(&mut self, value: Value, dtype: DType, shape: &[i64]) -> Value {
        let value = match self.builder.module.dtype(value) == dtype {
            true => value,
            false => {
                let own = self.builder.module.shape(value).to_vec();
                self.put(Opcode::TruncI, &[value], vec![Attr::Overflow(Overflow::None)], dtype, &own)
            }
        };
        match self.builder.module.shape(value) == shape {
            true => value,
            false => self.put(Opcode::Reshape, &[value], vec![], dtype, shape),
        }
    }
}
