//! One access to a tile of an array: its checks, and the view for its index.

use super::access_options::Access;
use crate::dtype::DType;
use crate::ir::{Opcode, Padding, Type, TypeId, Value};
use crate::ops::support::tile_index::Component;
use crate::tile::{ArrayData, ArrayHandle, Place, Trace, ValueHandle};
use crate::util::collect::CollectVec as _;

/// Returns true if the order has every axis once.
pub(crate) fn is_permutation(order: &[usize], rank: usize) -> bool {
    order.len() == rank && (0..rank).all(|axis| order.contains(&axis))
}

/// Returns true if the element type has the padding value.
fn can_pad(dtype: DType, padding: Padding) -> bool {
    use DType::{BF16, F4E2M1FN, F8E5M2, F8E8M0FNU, F16, F32, F64, TF32};
    match padding {
        Padding::Zero => true,
        Padding::NegZero => dtype.is_float() && dtype != F8E8M0FNU,
        Padding::NaN => dtype.is_float() && dtype != F4E2M1FN,
        Padding::PosInf | Padding::NegInf => matches!(dtype, F16 | BF16 | F32 | F64 | TF32 | F8E5M2),
    }
}

/// One load or store of a tile.
pub(crate) struct TileAccess<'a> {
    pub place: Place,
    pub name: &'static str,
    pub array: ArrayHandle,
    pub elem: &'static str,
    pub dtype: DType,
    pub shape: &'a [i64],
    /// The number of elements from one tile to the next; `None`: the extents of the tile.
    pub step: Option<&'a [i64]>,
    pub access: &'a Access,
    pub padding: Option<Padding>,
}

impl TileAccess<'_> {
    /// Reports illegal shapes and options. Returns false if nothing can be recorded.
    pub fn check(&self, t: &mut Trace) -> bool {
        let (place, name) = (self.place, self.name);
        if !t.legal_shape(place, name, self.shape) {
            return false;
        }
        let unfit = |step: &i64| !(1..=i64::from(i32::MAX)).contains(step);
        if let Some(axis) = self.steps().iter().position(unfit) {
            let message = format!("`{name}`: a step of {} along axis {axis}", self.steps()[axis]);
            t.report(place, message, &["tiles begin every so many elements: at least 1, less than 2^31"]);
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
        self.access.check(t, place, name);
        true
    }

    /// Returns the extents of the tile in the view: one of 1 if the array has no axes.
    pub fn extents(&self) -> &[i64] {
        if self.shape.is_empty() { &[1] } else { self.shape }
    }

    fn dim_map(&self, t: &mut Trace) -> Vec<i32> {
        let rank = self.shape.len();
        let in_order = (0..self.extents().len() as i32).collect_vec();
        match &self.access.order {
            Some(order) if !is_permutation(order, rank) => {
                let axes = rank.checked_sub(1).map_or("no axes".into(), |last| format!("the axes 0 to {last}"));
                let message = format!("`{}`: order {order:?} is not a permutation of {axes}", self.name);
                t.report(self.place, message, &["name each axis of the array once"]);
                in_order
            }
            Some(order) if rank > 0 => order.iter().map(|&d| d as i32).collect_vec(),
            Some(_) | None => in_order,
        }
    }

    /// Returns the axis of the array along an axis of the tiles, and the number of elements from
    /// one tile to the next.
    pub fn steps_along(&self, axis: usize) -> (usize, i64) {
        let order = self.access.order.as_ref().filter(|order| is_permutation(order, self.shape.len()));
        (order.map_or(axis, |order| order[axis]), self.steps()[axis])
    }

    fn steps(&self) -> &[i64] {
        self.step.filter(|step| !step.is_empty()).unwrap_or(self.extents())
    }

    /// Emits the view of the tiles. Returns `None` after a problem.
    pub fn view(&self, t: &mut Trace) -> Option<Value> {
        self.view_by(t, self.steps())
    }

    /// Emits the view of tiles with these steps, in elements.
    fn view_by(&self, t: &mut Trace, steps: &[i64]) -> Option<Value> {
        let dim_map = self.dim_map(t);
        let (tensor, view) = t.array_view(self.array, self.place)?;
        let (tile, padding) = (narrow(self.extents()), self.padding);
        let (code, ty) = if steps == self.extents() {
            (Opcode::MakePartitionView, Type::PartitionView { tile, view, dim_map, padding })
        } else {
            let traversal = narrow(steps);
            (Opcode::MakeStridedView, Type::StridedView { tile, traversal, view, dim_map, padding })
        };
        let ty = t.builder.module.intern(ty);
        Some(t.emit(code, &[&[tensor]], vec![], vec![], &[ty])[0])
    }

    /// Emits the view for an index, and its operands. Returns `None` after a problem.
    pub fn locate(&self, t: &mut Trace, index: &[Component]) -> Option<(Value, Vec<Value>)> {
        match self.sparse_axis(t, index)? {
            None => self.locate_regular(t, index),
            Some(axis) => self.locate_sparse(t, index, axis),
        }
    }

    /// Returns the axis whose positions are a list, if there is one; `None` after a problem: there
    /// are several.
    fn sparse_axis(&self, t: &mut Trace, index: &[Component]) -> Option<Option<usize>> {
        let is_sparse = |d: &usize| matches!(index[*d], Component::Sparse(_));
        let axes: Vec<usize> = (0..index.len()).filter(is_sparse).collect_vec();
        if axes.len() > 1 {
            let axes: Vec<String> = axes.iter().map(|d| d.to_string()).collect_vec();
            let message = format!("`{}`: components {} are lists of positions", self.name, axes.join(" and "));
            t.report(self.place, message, &["one axis can be sparse; for pairs of positions: `gather`, `scatter`"]);
            return None;
        }
        Some(axes.first().copied())
    }

    /// Returns the list of positions along an axis; `None` after a problem.
    fn listed(&self, t: &mut Trace, list: &Component, axis: usize) -> Option<Value> {
        let list = t.index_tile(self.place, list.number())?;
        let (count, extent) = (t.builder.module.shape(list)[0], self.shape[axis]);
        if count != extent {
            let message = format!("`{}`: {count} positions for extent {extent} of axis {axis}", self.name);
            t.report(self.place, message, &["one position for each element of the tile along this axis"]);
            return None;
        }
        Some(list)
    }

    /// Emits the positions of the tile's elements along each axis of the array, and their types.
    /// Their shape has the extent of the tile along the axis, and 1 elsewhere. Returns `None` after
    /// a problem.
    pub fn positions(&self, t: &mut Trace, index: &[Component]) -> Option<Vec<(ValueHandle, DType)>> {
        self.sparse_axis(t, index)?;
        t.array_view(self.array, self.place)?;
        let order = self.dim_map(t);
        let mut positions = vec![None; index.len()];
        for (d, component) in index.iter().enumerate() {
            let extent = self.shape[d];
            let start = match component {
                Component::Sparse(_) => None,
                Component::Tiles(number) => Some(t.scaled_index(self.place, *number, self.steps()[d])?),
                Component::Elements(number) => Some(t.index_scalar(self.place, *number)?),
            };
            let list = match start {
                None => self.listed(t, component, d)?,
                Some(start) => {
                    let along = t.arrays[self.array.index as usize].extents[order[d] as usize];
                    let start = if t.fits(along) { start } else { t.as_width(start, DType::I64) };
                    t.positions_from(start, extent)
                }
            };
            let dtype = t.builder.module.dtype(list);
            let mut shape = vec![1; index.len()];
            shape[d] = extent;
            let list = t.put(Opcode::Reshape, &[list], vec![], dtype, &shape);
            positions[order[d] as usize] = Some((t.raw(list), dtype));
        }
        positions.into_iter().collect()
    }

    fn locate_regular(&self, t: &mut Trace, index: &[Component]) -> Option<(Value, Vec<Value>)> {
        let mut indices = match index {
            [] => vec![t.splat(DType::I32, 0, &[])],
            _ => index.iter().map(|c| t.index_scalar(self.place, c.number())).collect::<Option<_>>()?,
        };
        t.of_one_width(&mut indices);
        let mut steps = self.steps().to_vec();
        for (step, component) in steps.iter_mut().zip(index) {
            if matches!(component, Component::Elements(_)) {
                *step = 1;
            }
        }
        Some((self.view_by(t, &steps)?, indices))
    }

    /// Emits the view for an index with one list of positions. The other components count elements.
    fn locate_sparse(&self, t: &mut Trace, index: &[Component], axis: usize) -> Option<(Value, Vec<Value>)> {
        let list = self.listed(t, &index[axis], axis)?;
        let mut offsets = Vec::new();
        for (d, component) in index.iter().enumerate().filter(|&(d, _)| d != axis) {
            offsets.push(match component {
                Component::Tiles(number) => t.scaled_index(self.place, *number, self.steps()[d])?,
                Component::Elements(number) | Component::Sparse(number) => t.index_scalar(self.place, *number)?,
            });
        }
        t.of_one_width(&mut offsets);
        offsets.insert(axis, list);
        let order: Vec<usize> = self.dim_map(t).iter().map(|&d| d as usize).collect_vec();
        let array = match order.is_sorted() {
            true => self.array,
            false => t.permute_array(self.array, self.place, self.dtype, &order),
        };
        let (tensor, view) = t.array_view(array, self.place)?;
        let ty =
            Type::GatherScatterView { tile: narrow(self.shape), view, sparse_dim: axis as u32, padding: self.padding };
        let ty = t.builder.module.intern(ty);
        Some((t.emit(Opcode::MakeGatherScatterView, &[&[tensor]], vec![], vec![], &[ty])[0], offsets))
    }
}

fn narrow(extents: &[i64]) -> Vec<i32> {
    extents.iter().map(|&e| e as i32).collect_vec()
}

impl Trace {
    /// Returns the tensor view of an array and its type; `None` after a problem.
    pub(super) fn array_view(&mut self, array: ArrayHandle, place: Place) -> Option<(Value, TypeId)> {
        self.array_data(array, place).map(|data| (data.view, data.view_type))
    }

    /// Returns the properties of an array; `None` after a problem.
    pub(crate) fn array_data(&mut self, array: ArrayHandle, place: Place) -> Option<ArrayData> {
        if array.trace != self.id() {
            let way_out = "arrays exist only while their kernel is traced: do not keep them in statics or cells";
            self.report(place, "this array belongs to another kernel trace", &[way_out]);
            return None;
        }
        let data = self.arrays[array.index as usize].clone();
        let raw = self.raw(data.view);
        self.check_usable(raw, place).map(|_| data)
    }

    /// Emits the array with its axes in another order. Returns the same one after a problem.
    pub(super) fn permute_array(
        &mut self,
        array: ArrayHandle,
        place: Place,
        dtype: DType,
        order: &[usize],
    ) -> ArrayHandle {
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
        let extents = order.iter().map(|&d| data.extents[d]).collect_vec();
        let strides = order.iter().map(|&d| data.strides[d]).collect_vec();
        self.make_array(dtype, data.base, extents, strides, unit)
    }
}
