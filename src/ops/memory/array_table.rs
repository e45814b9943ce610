//! Arrays that are selected from a table by number.

use crate::dtype::DType;
use crate::element::ByteSized;
use crate::ir::op_table::Effect;
use crate::ir::{Attr, CmpPred, ConstData, MemOrder, Opcode, Overflow, Predicate, Sign, Type, Value};
use crate::ops::support::tile_index::{Component, IntoIndex};
use crate::tile::{Array, ArrayHandle, ArrayMut, Arrays, ArraysMut, Handle, Place, Scalar, TableHandle, Trace};
use crate::tile::{caller_location, record};
use crate::util::collect::CollectVec as _;

/// Returns the number of words of an array of this rank.
fn words_of(rank: usize) -> usize {
    1 + 2 * rank
}

impl Trace {
    /// Emits the loads of the array at an index. Returns `None` after a problem.
    fn array_of_table(
        &mut self,
        place: Place,
        dtype: DType,
        rank: usize,
        table: TableHandle,
        index: Component,
    ) -> Option<ArrayHandle> {
        self.at(place);
        let Component::Tiles(number) = index else {
            let message = "`get`: this counts arrays, without `ct::at`";
            self.report(place, message, &["write the number or scalar itself"]);
            return None;
        };
        let [words, first, count] = [table.words, table.first, table.count].map(|raw| self.check_usable(raw, place));
        let (words, first, count) = (words?, first?, count?);
        if !self.admits(place, Effect::Read, 0) {
            return None;
        }
        let index = self.index_scalar(place, number)?;
        let [index, count] = [index, count].map(|value| self.as_width(value, DType::I64));
        // Read as unsigned, a negative index is too large.
        let less = vec![Attr::CmpPred(CmpPred::Lt), Attr::Sign(Sign::Unsigned)];
        let inside = self.put(Opcode::CmpI, &[index, count], less, DType::I1, &[]);
        let row = self.integer(words_of(rank) as i64, DType::I64);
        let row = self.integers(Opcode::MulI, vec![Attr::Overflow(Overflow::None)], index, row);
        let words = self.pointers(DType::I64, words, row, &[]);
        let mut all = Vec::with_capacity(words_of(rank));
        for position in 0..words_of(rank) {
            all.push(self.word(words, position, inside));
        }
        let facts = table.facts;
        // Outside of the table, distance and extents are 0.
        let distance = self
            .assumed(all[0], Predicate::DivBy { divisor: facts.base_align.max(1).into(), every: None, along: None });
        let byte = self.builder.module.intern(Type::ptr(DType::I8));
        let first = self.emit(Opcode::PtrToPtr, &[&[first]], vec![], vec![], &[byte])[0];
        let base = self.pointers(DType::I8, first, distance, &[]);
        let pointer = self.builder.module.intern(Type::ptr(dtype));
        let base = self.emit(Opcode::PtrToPtr, &[&[base]], vec![], vec![], &[pointer])[0];
        let width = if facts.index64 { DType::I64 } else { DType::I32 };
        let numbers: Vec<Value> = all[1..].iter().map(|&word| self.as_width(word, width)).collect_vec();
        let (extents, strides) = numbers.split_at(rank);
        Some(self.array_with_facts(dtype, base, extents.to_vec(), strides.to_vec(), facts))
    }

    /// Emits the load of a word of the table; 0 outside of the table.
    fn word(&mut self, words: Value, position: usize, inside: Value) -> Value {
        let position = self.integer(position as i64, DType::I64);
        let pointer = self.pointers(DType::I64, words, position, &[]);
        let types = [Type::scalar(DType::I64), Type::Token].map(|ty| self.builder.module.intern(ty));
        let zero = self.emit(Opcode::Constant, &[], vec![Attr::Value(ConstData::Splat(0))], vec![], &types[..1])[0];
        let weak = vec![Attr::MemOrder(MemOrder::Weak)];
        self.emit(Opcode::LoadPtr, &[&[pointer], &[inside], &[zero], &[]], weak, vec![], &types)[0]
    }
}

macro_rules! tables {
    ($($arrays:ident $array:ident $host:literal;)+) => {$(
        impl<T: ByteSized, const R: usize> $arrays<T, R> {
            /// Returns the array at an index, a number or scalar. Outside of the table it is an
            /// array without elements: all extents are 0, loads read padding, and stores have no
            /// effect.
            ///
            #[doc = concat!("Tables are made by [`", $host, "`](crate::", $host, ").")]
            ///
            /// ```
            /// # use cutlet::doctest::*;
            /// fn extents(table: ct::Arrays<i32, 1>, y: ArrayMut<i32, 1>) {
            ///     y.store_scalar(ct::bid(0), table.get(ct::bid(0)).extent(0));
            /// }
            ///
            /// let device = ct::Device::cpu();
            /// let (a, b, mut y) = (device.full([7], 1)?, device.full([5], 1)?, device.zeros([3])?);
            /// ct::launch(extents, 3, (&ct::ArrayTable::new(&[&a, &b])?, &mut y))?;
            /// assert_eq!(y.to_vec()?, [7, 5, 0]);
            /// # Ok::<(), ct::Error>(())
            /// ```
            #[track_caller]
            #[must_use]
            pub fn get(self, index: impl IntoIndex) -> $array<T, R> {
                let (place, index) = (caller_location(), index.component());
                $array::from_handle(record(|t| {
                    let found = t.array_of_table(place, T::DTYPE, R, self.handle, index);
                    found.unwrap_or_else(|| t.poison_array(R))
                }))
            }

            /// Returns the number of arrays.
            ///
            /// ```
            /// # use cutlet::doctest::*;
            /// fn count(table: ct::Arrays<i32, 1>, y: ArrayMut<i32, 1>) {
            ///     y.store_scalar(0, table.len());
            /// }
            ///
            /// let device = ct::Device::cpu();
            /// let (a, b, mut y) = (device.full([7], 1)?, device.full([5], 1)?, device.zeros([1])?);
            /// ct::launch(count, 1, (&ct::ArrayTable::new(&[&a, &b])?, &mut y))?;
            /// assert_eq!(y.to_vec()?, [2]);
            /// # Ok::<(), ct::Error>(())
            /// ```
            #[track_caller]
            #[must_use]
            #[allow(clippy::len_without_is_empty, reason = "a table has at least one array")]
            pub fn len(self) -> Scalar<i32> {
                Scalar::from_raw(self.handle.count)
            }
        }
    )+};
}
tables! {
    Arrays Array "ArrayTable";
    ArraysMut ArrayMut "ArrayTableMut";
}
