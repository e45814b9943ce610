//! Words of packed arrays: views of the array, and loads of their tiles.

use crate::util::collect::CollectVec as _;
use rustc_hash::FxHashMap;

use super::bits::Bits;
use super::word_packing::{Coded, Grouping};
use crate::dtype::DType;
use crate::ir::op_table::Effect;
use crate::ir::{Attr, Opcode, Overflow, Padding, Predicate, Rounding, Sign, Type, Value};
use crate::ops::memory::access_options::Access;
use crate::ops::memory::tile_access::TileAccess;
use crate::ops::support::tile_index::{Component, IntoIndex};
use crate::tile::{ArrayHandle, Place, Trace, ValueHandle};

/// An access to a packed array of 32-bit words, with its source location and its name in messages.
pub struct Source {
    pub place: Place,
    pub name: &'static str,
    pub array: ArrayHandle,
    pub coded: Coded,
    /// Offsets in bytes need 64 bits.
    pub bytes64: bool,
}

/// The integer type of words of `unit` bits.
pub fn word_type(unit: u32) -> DType {
    match unit {
        8 => DType::I8,
        16 => DType::I16,
        _ => DType::I32,
    }
}

impl Source {
    /// Returns the grouping of a tile of this shape. Reports errors of the shape and the index.
    pub fn grouping(&self, t: &mut Trace, index: &[Component], shape: &[i64]) -> Option<Grouping> {
        let Source { place, name, coded, .. } = *self;
        t.at(place);
        if !t.legal_shape(place, name, shape) {
            return None;
        }
        let last = shape.len() - 1;
        if !matches!(index[last], Component::Tiles(_)) {
            let message =
                format!("`{name}`: `ct::at` along axis {last}, in which elements of {} share bytes", coded.name);
            t.report(place, message, &["along the last axis of a packed array an index counts tiles"]);
            return None;
        }
        let grouping = Grouping::of(coded.bits, shape[last]);
        if grouping.is_none() {
            let (extent, least) = (shape[last], Grouping::least(coded.bits));
            let message = format!("`{name}`: rows of {extent} elements of {} are no whole bytes", coded.name);
            t.report(
                place,
                message,
                &[&format!("the last extent of tile shape {shape:?} has to be a multiple of {least}")],
            );
        }
        grouping
    }

    /// The view of the array with words of this grouping. If a group has several words, they are
    /// one more axis.
    pub fn words(&self, t: &mut Trace, grouping: Grouping) -> Option<ArrayHandle> {
        const WRAP: Attr = Attr::Overflow(Overflow::None);
        let mut data = t.array_data(self.array, self.place)?;
        let last = data.extents.len() - 1;
        if self.bytes64 && grouping.unit < 32 {
            for number in data.extents.iter_mut().chain(&mut data.strides) {
                *number = t.as_width(*number, DType::I64);
            }
        }
        let index = t.builder.module.dtype(data.extents[last]);
        let number = |t: &mut Trace, number: u32| t.splat(index, number.into(), &[]);
        let factor = 32 / grouping.unit;
        let scaled = |t: &mut Trace, value: Value| match factor {
            1 => value,
            _ => {
                let factor = number(t, factor);
                t.put(Opcode::MulI, &[value, factor], vec![WRAP], index, &[])
            }
        };
        let mut strides = Vec::with_capacity(last + 2);
        for &stride in &data.strides[..last] {
            // Rows are whole groups of 128 elements.
            let known = t.assumed(stride, Predicate::DivBy { divisor: 4, every: None, along: None });
            strides.push(scaled(t, known));
        }
        let mut extents = data.extents.clone();
        extents[last] = scaled(t, extents[last]);
        if grouping.words > 1 {
            let words = number(t, grouping.words);
            let attrs = vec![Attr::Sign(Sign::Signed), Attr::Rounding(Rounding::Zero)];
            extents[last] = t.put(Opcode::DivI, &[extents[last], words], attrs, index, &[]);
            extents.push(words);
            strides.push(words);
        }
        strides.push(number(t, 1));
        let dtype = word_type(grouping.unit);
        let pointer = t.builder.module.intern(Type::ptr(dtype));
        let base = match grouping.unit {
            32 => data.base,
            _ => t.emit(Opcode::PtrToPtr, &[&[data.base]], vec![], vec![], &[pointer])[0],
        };
        let unit = 1 << (strides.len() - 1);
        Some(t.make_array(dtype, base, extents, strides, unit))
    }

    /// The shape and the index of each word of the groups of a tile.
    pub fn pieces(grouping: Grouping, index: &[Component], shape: &[i64]) -> (Vec<i64>, Vec<Vec<Component>>) {
        let mut shape = shape.to_vec();
        shape[index.len() - 1] = grouping.groups;
        if grouping.words == 1 {
            return (shape, vec![index.to_vec()]);
        }
        shape.push(1);
        let indices = (0..grouping.words as usize).map(|word| {
            let mut index = index.to_vec();
            index.push(word.component());
            index
        });
        (shape, indices.collect_vec())
    }

    /// Returns the access to a tile of words.
    pub fn tile_access<'a>(
        &self,
        words: ArrayHandle,
        unit: u32,
        shape: &'a [i64],
        access: &'a Access,
        padding: Option<Padding>,
    ) -> TileAccess<'a> {
        let (place, name, elem, dtype) = (self.place, self.name, self.coded.name, word_type(unit));
        TileAccess { place, name, array: words, elem, dtype, shape, step: None, access, padding }
    }
}

impl Trace {
    /// Loads a tile of a packed array.
    pub(super) fn load_packed(&mut self, source: &Source, index: &[Component], shape: &[i64]) -> Bits {
        match self.load_groups(source, index, shape) {
            Some(bits) => bits,
            None => {
                let shape = if shape.iter().all(|&e| e > 0) { shape.to_vec() } else { vec![1; shape.len()] };
                Bits::Codes(self.poison(Type::tile(DType::I32, shape)))
            }
        }
    }

    fn load_groups(&mut self, source: &Source, index: &[Component], shape: &[i64]) -> Option<Bits> {
        let grouping = source.grouping(self, index, shape)?;
        if !self.admits(source.place, Effect::Read, shape.len()) {
            return None;
        }
        let array = source.words(self, grouping)?;
        let (piece, indices) = Source::pieces(grouping, index, shape);
        let access = Access::default();
        let tile_access = source.tile_access(array, grouping.unit, &piece, &access, Some(Padding::Zero));
        let mut loaded: Vec<ValueHandle> = Vec::with_capacity(indices.len());
        for index in &indices {
            loaded.push(self.load(&tile_access, index));
        }
        let mut apart = piece.clone();
        apart.truncate(shape.len());
        apart.push(1);
        let mut words = Vec::with_capacity(loaded.len());
        for raw in loaded {
            let mut word = self.check_usable(raw, source.place)?;
            if grouping.unit < 32 {
                word = self.put(Opcode::ExtI, &[word], vec![Attr::Sign(Sign::Unsigned)], DType::I32, &piece);
            }
            words.push(match piece == apart {
                true => word,
                false => self.put(Opcode::Reshape, &[word], vec![], DType::I32, &apart),
            });
        }
        let bits = source.coded.bits;
        let first = |element| grouping.place(bits, element);
        let low: Vec<Option<u32>> = (0..grouping.elements).map(|element| Some(first(element).0)).collect_vec();
        let straddles = |element| (first(element).1 + bits > grouping.unit).then(|| first(element).0 + 1);
        let high: Vec<Option<u32>> = (0..grouping.elements).map(straddles).collect_vec();
        let mut joined = Joined { words, shape: apart, known: FxHashMap::default() };
        let low = joined.of(self, &low);
        let high = high.iter().any(Option::is_some).then(|| joined.of(self, &high));
        Some(Bits::Words { low: self.raw(low), high: high.map(|high| self.raw(high)), unit: grouping.unit })
    }
}

/// Concatenation of words along the last axis, by lists that can repeat words or contain zeros.
struct Joined {
    words: Vec<Value>,
    shape: Vec<i64>,
    known: FxHashMap<Vec<Option<u32>>, Value>,
}

impl Joined {
    /// Concatenates a list, whose length is a power of two. It is split into its even and odd
    /// positions, so that the most distant elements are joined first. If threads share the elements
    /// of a group, each thread then has adjacent ones.
    fn of(&mut self, t: &mut Trace, list: &[Option<u32>]) -> Value {
        if let Some(&value) = self.known.get(list) {
            return value;
        }
        let mut shape = self.shape.clone();
        let axis = shape.len() - 1;
        shape[axis] = list.len() as i64;
        let value = match list {
            [Some(word)] => self.words[*word as usize],
            _ if list.iter().all(Option::is_none) => t.splat(DType::I32, 0, &shape),
            _ => {
                let halves = [0, 1].map(|first| {
                    let turns: Vec<Option<u32>> = list.iter().skip(first).step_by(2).copied().collect_vec();
                    let value = self.of(t, &turns);
                    let mut apart = shape.clone();
                    apart[axis] /= 2;
                    apart.push(1);
                    t.put(Opcode::Reshape, &[value], vec![], DType::I32, &apart)
                });
                let mut pairs = shape.clone();
                pairs[axis] /= 2;
                pairs.push(2);
                let both = t.put(Opcode::Cat, &halves, vec![Attr::Dim(axis as u32 + 1)], DType::I32, &pairs);
                t.put(Opcode::Reshape, &[both], vec![], DType::I32, &shape)
            }
        };
        self.known.insert(list.to_vec(), value);
        value
    }
}
