//! Arrays to tiles and back: `load`, `store`, extents, permuted views.
//!
//! An array is seen as a grid of tiles of one shape; an index counts **tiles**, not elements. What lies
//! outside of the array reads as padding (zero unless stated) and is not written.

use super::access::{Access, LoadOptions, StoreOptions, TileIndex};
use super::construct::extents;
use crate::dtype::DType;
use crate::element::{Element, Whole};
use crate::ir::table::Effect;
use crate::ir::{Attr, Opcode, Overflow, Padding, Type, Value};
use crate::tile::{
    Array, ArrayData, ArrayHandle, ArrayMut, Handle, Place, Raw, Scalar, Source, Tile, Trace, here, record,
};

/// Is every axis named once?
pub(crate) fn is_permutation(order: &[usize], rank: usize) -> bool {
    order.len() == rank && (0..rank).all(|axis| order.contains(&axis))
}

/// Does this element type have the padding value?
fn can_pad(dtype: DType, padding: Padding) -> bool {
    use DType::{BF16, F4E2M1FN, F8E5M2, F8E8M0FNU, F16, F32, F64, TF32};
    match padding {
        Padding::Zero => true,
        Padding::NegZero => dtype.is_float() && dtype != F8E8M0FNU,
        Padding::NaN => dtype.is_float() && dtype != F4E2M1FN,
        Padding::PosInf | Padding::NegInf => matches!(dtype, F16 | BF16 | F32 | F64 | TF32 | F8E5M2),
    }
}

/// One load or store of a tile: where, how, and in whose words.
struct Visit<'a> {
    place: Place,
    name: &'static str,
    array: ArrayHandle,
    elem: &'static str,
    dtype: DType,
    shape: &'a [i64],
    access: &'a Access,
    padding: Option<Padding>,
}

impl Visit<'_> {
    fn check(&self, t: &mut Trace) -> bool {
        let (place, name) = (self.place, self.name);
        if !t.legal_shape(place, name, self.shape) {
            return false;
        }
        if self.dtype == DType::F4E2M1FN && self.shape.iter().all(|&e| e == 1) {
            let message = format!("`{name}` of a single {}: two of them share a byte", self.elem);
            t.report(place, message, &["take a tile with at least two elements along some axis"]);
        }
        if let Some(padding) = self.padding
            && !can_pad(self.dtype, padding)
        {
            let message = format!("`{name}`: padding `{padding:?}` does not exist for {}", self.elem);
            t.report(place, message, &["pad with `Padding::Zero`, or load and replace with `select`"]);
        }
        if let Some(latency) = self.access.latency
            && !(1..=10).contains(&latency)
        {
            t.report(
                place,
                format!("`{name}`: latency {latency} is not between 1 and 10"),
                &["leave it out unless measurements ask for it"],
            );
        }
        true
    }

    /// The extents of the tile in the view: one of 1 where the array has no dimensions.
    fn extents(&self) -> &[i64] {
        if self.shape.is_empty() { &[1] } else { self.shape }
    }

    fn dim_map(&self, t: &mut Trace) -> Vec<i32> {
        let rank = self.shape.len();
        let in_order = (0..self.extents().len() as i32).collect();
        match &self.access.order {
            Some(order) if !is_permutation(order, rank) => {
                let axes = rank.checked_sub(1).map_or("no axes".into(), |last| format!("the axes 0 to {last}"));
                let message = format!("`{}`: order {order:?} is not a permutation of {axes}", self.name);
                t.report(self.place, message, &["name each axis of the array once"]);
                in_order
            }
            Some(order) if rank > 0 => order.iter().map(|&d| d as i32).collect(),
            Some(_) | None => in_order,
        }
    }

    /// The partition view, recorded; `None` after a problem.
    fn view(&self, t: &mut Trace) -> Option<Value> {
        let dim_map = self.dim_map(t);
        let (tensor, tensor_type) = t.array_view(self.array, self.place)?;
        let ty = t.builder.module.intern(Type::PartitionView {
            tile: self.extents().iter().map(|&e| e as i32).collect(),
            view: tensor_type,
            dim_map,
            padding: self.padding,
        });
        Some(t.emit(Opcode::MakePartitionView, &[&[tensor]], vec![], vec![], &[ty])[0])
    }
}

impl Trace {
    /// The tensor view of an array and its type; `None` after a problem.
    fn array_view(&mut self, array: ArrayHandle, place: Place) -> Option<(Value, crate::ir::TypeId)> {
        self.array_data(array, place).map(|data| (data.view, data.view_type))
    }

    /// What is known of an array; `None` after a problem.
    pub(crate) fn array_data(&mut self, array: ArrayHandle, place: Place) -> Option<ArrayData> {
        if array.trace != self.id() {
            let way_out = "arrays exist only while their kernel is traced: do not keep them in statics or cells";
            self.report(place, "this array belongs to another kernel trace", &[way_out]);
            return None;
        }
        let data = self.arrays[array.index as usize].clone();
        let raw = self.raw(data.view);
        self.usable(raw, place).map(|_| data)
    }

    fn indices(&mut self, place: Place, sources: &[Source]) -> Option<Vec<Value>> {
        let sources = if sources.is_empty() { &[Source::Extent(0)] } else { sources };
        sources.iter().map(|&source| self.scalar(place, source, DType::I32)).collect()
    }

    fn load(&mut self, visit: &Visit<'_>, index: &[Source]) -> Raw {
        self.at(visit.place);
        let rank = visit.shape.len();
        if !visit.check(self) {
            return self.poison(Type::tile(visit.dtype, vec![1; rank]));
        }
        let ty = Type::tile(visit.dtype, visit.shape);
        if !self.admits(visit.place, Effect::Read, rank) {
            return self.poison(ty);
        }
        let Some(indices) = self.indices(visit.place, index) else { return self.poison(ty) };
        let Some(view) = visit.view(self) else { return self.poison(ty) };
        let loaded = self.builder.module.intern(Type::tile(visit.dtype, visit.extents()));
        let types = [loaded, self.builder.module.intern(Type::Token)];
        let attrs = visit.access.attrs(indices.len());
        let results = self.emit(Opcode::LoadView, &[&[view], &indices, &[]], attrs, vec![], &types);
        let tile = match rank {
            0 => self.put(Opcode::Reshape, &[results[0]], vec![], visit.dtype, &[]),
            _ => results[0],
        };
        self.raw(tile)
    }

    fn store(&mut self, visit: &Visit<'_>, index: &[Source], tile: Raw) {
        self.at(visit.place);
        let rank = visit.shape.len();
        let tile = self.usable(tile, visit.place);
        if !visit.check(self) || !self.admits(visit.place, Effect::Write, rank) {
            return;
        }
        let Some(indices) = self.indices(visit.place, index) else { return };
        let (Some(view), Some(tile)) = (visit.view(self), tile) else { return };
        let tile = match rank {
            0 => self.put(Opcode::Reshape, &[tile], vec![], visit.dtype, &[1]),
            _ => tile,
        };
        let token = self.builder.module.intern(Type::Token);
        let attrs = visit.access.attrs(indices.len());
        self.emit(Opcode::StoreView, &[&[tile], &[view], &indices, &[]], attrs, vec![], &[token]);
    }

    /// The extent of one axis as recorded: i32 or i64.
    fn extent(&mut self, array: ArrayHandle, place: Place, axis: usize, to: DType) -> Raw {
        self.at(place);
        let ty = Type::scalar(to);
        if self.array_view(array, place).is_none() {
            return self.poison(ty);
        }
        let extents = self.arrays[array.index as usize].extents.clone();
        let Some(&extent) = extents.get(axis) else {
            let message = format!("`extent`: axis {axis} of an array with {} axes", extents.len());
            return self.fail(place, ty, message, &["axes are counted from 0"]);
        };
        let value = match (self.builder.module.dtype(extent), to) {
            (from, to) if from == to => extent,
            (DType::I64, _) => self.put(Opcode::TruncI, &[extent], vec![Attr::Overflow(Overflow::None)], to, &[]),
            _ => self.put(Opcode::ExtI, &[extent], vec![Attr::Sign(crate::ir::Sign::Signed)], to, &[]),
        };
        self.raw(value)
    }

    fn num_tiles(&mut self, visit: &Visit<'_>, axis: usize) -> Raw {
        self.at(visit.place);
        let ty = Type::scalar(DType::I32);
        let rank = visit.shape.len();
        if axis >= rank {
            let message = format!("`num_tiles`: axis {axis} of an array with {rank} axes");
            return self.fail(visit.place, ty, message, &["axes are counted from 0"]);
        }
        if !visit.check(self) || !self.admits(visit.place, Effect::Pure, 0) {
            return self.poison(ty);
        }
        let Some(view) = visit.view(self) else { return self.poison(ty) };
        let types = vec![self.builder.module.intern(ty); rank];
        let values = self.emit(Opcode::GetIndexSpaceShape, &[&[view]], vec![], vec![], &types);
        self.raw(values[axis])
    }

    fn permute_array(&mut self, array: ArrayHandle, place: Place, dtype: DType, order: &[usize]) -> ArrayHandle {
        self.at(place);
        if self.array_view(array, place).is_none() {
            return array;
        }
        let data = self.arrays[array.index as usize].clone();
        if !is_permutation(order, data.extents.len()) {
            let message =
                format!("`permute`: {order:?} is not a permutation of the axes 0 to {}", data.extents.len() - 1);
            self.report(place, message, &["name each axis of the array once"]);
            return array;
        }
        let unit = order.iter().enumerate().map(|(d, &from)| (data.unit_stride >> from & 1) << d).sum();
        let extents = order.iter().map(|&d| data.extents[d]).collect();
        let strides = order.iter().map(|&d| data.strides[d]).collect();
        self.make_array(dtype, data.base, extents, strides, unit)
    }
}

macro_rules! array_methods {
    ($name:ident) => {
        impl<T: Element, const R: usize> $name<T, R> {
            /// The tile of `shape` at a tile index: along each axis the elements from `index * extent` on.
            /// Elements outside of the array read as zero; so does a tile that lies outside as a whole.
            #[track_caller]
            pub fn load(self, index: impl TileIndex<R>, shape: [usize; R]) -> Tile<T, R> {
                self.load_with(index, shape, LoadOptions::default())
            }

            /// [`Self::load`] with padding, axis order, bounds check and hints as stated.
            #[track_caller]
            pub fn load_with(self, index: impl TileIndex<R>, shape: [usize; R], options: LoadOptions) -> Tile<T, R> {
                let shape = extents(shape);
                let visit = self.visit(here(), "load", &shape, &options.access, Some(options.padding));
                Tile::from_raw(record(|t| t.load(&visit, &index.into_indices())))
            }

            /// The element at an element index; zero outside of the array.
            #[track_caller]
            pub fn load_scalar(self, index: impl TileIndex<R>) -> Scalar<T>
            where
                T: Whole,
            {
                self.load(index, [1; R]).item()
            }

            /// The extent of an axis in elements.
            #[track_caller]
            pub fn extent(self, axis: usize) -> Scalar<i32> {
                let place = here();
                Scalar::from_raw(record(|t| t.extent(self.handle, place, axis, DType::I32)))
            }

            /// The extent of an axis in elements, for arrays with 2^31 elements or more along one.
            #[track_caller]
            pub fn extent64(self, axis: usize) -> Scalar<i64> {
                let place = here();
                Scalar::from_raw(record(|t| t.extent(self.handle, place, axis, DType::I64)))
            }

            /// The extents of all axes in elements.
            #[track_caller]
            pub fn shape(self) -> [Scalar<i32>; R] {
                let place = here();
                std::array::from_fn(|d| Scalar::from_raw(record(|t| t.extent(self.handle, place, d, DType::I32))))
            }

            /// How many tiles of `shape` cover the array along an axis, the last one perhaps in part. Tile indices
            /// are i32: an array with 2^31 tiles or more along an axis needs larger ones.
            #[track_caller]
            pub fn num_tiles(self, axis: usize, shape: [usize; R]) -> Scalar<i32> {
                let (shape, access) = (extents(shape), Access::default());
                let visit = self.visit(here(), "num_tiles", &shape, &access, Some(Padding::Zero));
                Scalar::from_raw(record(|t| t.num_tiles(&visit, axis)))
            }

            /// The same memory with axes in another order: axis `d` of the result is axis `order[d]` of this array.
            /// Nothing is copied.
            #[track_caller]
            pub fn permute(self, order: [usize; R]) -> $name<T, R> {
                let place = here();
                $name::from_handle(record(|t| t.permute_array(self.handle, place, T::DTYPE, &order)))
            }

            fn visit<'a>(
                self,
                place: Place,
                name: &'static str,
                shape: &'a [i64],
                access: &'a Access,
                padding: Option<Padding>,
            ) -> Visit<'a> {
                Visit { place, name, array: self.handle, elem: T::NAME, dtype: T::DTYPE, shape, access, padding }
            }
        }
    };
}
array_methods!(Array);
array_methods!(ArrayMut);

impl<T: Element, const R: usize> ArrayMut<T, R> {
    /// Writes a tile at a tile index: along each axis to the elements from `index * extent` on. What lies
    /// outside of the array is not written.
    #[track_caller]
    pub fn store(self, index: impl TileIndex<R>, tile: Tile<T, R>) {
        self.store_with(index, tile, StoreOptions::default());
    }

    /// [`ArrayMut::store`] with axis order, bounds check and hints as stated.
    #[track_caller]
    pub fn store_with(self, index: impl TileIndex<R>, tile: Tile<T, R>, options: StoreOptions) {
        let place = here();
        record(|t| {
            let shape = t.shape(tile.raw());
            let visit = self.visit(place, "store", &shape, &options.access, None);
            t.store(&visit, &index.into_indices(), tile.raw());
        });
    }

    /// Writes one element at an element index; does nothing outside of the array.
    #[track_caller]
    pub fn store_scalar(self, index: impl TileIndex<R>, value: impl super::Operand<Tile<T, R>>)
    where
        T: Whole,
    {
        self.store(index, super::full([1; R], value));
    }

    /// The same array, read only.
    pub fn as_array(self) -> Array<T, R> {
        Array::from_handle(self.handle)
    }
}
