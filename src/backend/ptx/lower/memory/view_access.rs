//! Addresses and masks of a view access, shared by all of its vectors.
//!
//! Along dimension d a tile starts at `index * step` and has `remaining = extent - start` valid
//! elements (none if the index is outside of the index space). A thread compares the coordinate of
//! each vector with `remaining`:
//! * If the extent is divisible by the vector length, a vector is completely inside or outside.
//! * Otherwise CTAs with complete tiles use vectors, and the others access single elements.
//! * Along a dimension with a promise of the user (`inbounds`) there is no comparison.

use crate::util::collect::CollectVec as _;
use std::rc::Rc;

use rustc_hash::FxHashMap;

use super::indexed_axis::IndexedAxis;
use super::tensor_view::PartitionView;
use super::tile_bounds::BoundsCheck;
use crate::backend::ptx::isa::inst::{Addr, Cmp, CvtMods, MemMods, Operand, Reg, Ty};
use crate::backend::ptx::layout_inference::{AxisBits, ViewShape, contiguous_axis};
use crate::backend::ptx::lower::state::memory_order::FencedAccess;
use crate::backend::ptx::lower::state::values::TensorView;
use crate::backend::ptx::lower::state::vector_access;
use crate::backend::ptx::lower::{Lowered, Lowering};
use crate::backend::ptx::remarks::DataPath;
use crate::dtype::DType;
use crate::ir::{Attr, AttrKind, OpId, Value};
use crate::layout::Layout;
use crate::types::float_codec;

/// Number of addresses per thread and tile from which on they are not all kept in registers.
const MANY_ADDRESSES: usize = 32;

/// Addresses and masks that the vectors of an access share.
pub struct ViewAccess {
    partition: PartitionView,
    pub layout: Layout,
    pub mods: MemMods,
    /// Bits of elements outside of the array.
    pub padding: u64,
    /// Address of the element in register 0 of the thread (B64).
    base: Operand,
    /// Bounds checks by tile dimension, relative to the coordinate of the thread. `None` for
    /// promised dimensions.
    checks: Vec<Option<BoundsCheck>>,
    /// Number of elements inside from the start of the tile on, by tile dimension.
    inside: Vec<Option<Operand>>,
    /// Positions along the indexed dimension.
    list: Option<IndexedAxis>,
    /// Registers per vector.
    vector: usize,
    /// The axis along which a vector may be partly inside.
    pub ragged: Option<usize>,
    /// Misalignment of the tile start.
    pub misalignment: Option<Misalignment>,
    offsets: FxHashMap<(usize, u32), Operand>,
    addresses: FxHashMap<Vec<u32>, Operand>,
    masks: FxHashMap<(usize, u32), Reg>,
    combined: FxHashMap<Vec<(usize, u32)>, Reg>,
    /// Predicate of the threads that write, if several hold the same element.
    pub owner: Option<Reg>,
    /// Registers are accessed by strip iterations, with other work between these.
    in_strips: bool,
}

/// Misalignment of a tile with respect to vectors.
#[derive(Clone, Copy, Debug)]
pub struct Misalignment {
    /// The contiguous axis of the tile.
    pub axis: usize,
    /// Elements per vector.
    pub vector: usize,
    /// Elements from the start of a vector to the start of the tile; at least 1.
    pub elements: usize,
}

impl Lowering<'_> {
    /// Computes the shared part of an access.
    pub fn access(
        &mut self,
        id: OpId,
        view: Value,
        indices: &[Value],
        layout: &Layout,
        shift: Option<Misalignment>,
    ) -> Lowered<ViewAccess> {
        let module = self.module;
        let promised = match module.op(id).attr(AttrKind::Inbounds) {
            Some(Attr::Inbounds(promised)) => promised.as_slice(),
            _ => &[],
        };
        let is_promised = |axis: usize| promised.get(axis) == Some(&true);
        let partition = self.partition(view)?;
        let shape = ViewShape::at(module, &self.info.inference.int_ranges, view, indices)
            .ok_or("only views of tiles can be accessed")?;
        let tensor = Rc::clone(&partition.tensor);
        let ty = if tensor.wide { Ty::S64 } else { Ty::S32 };
        let (mut checks, mut inside) = (Vec::new(), Vec::new());
        let mut offset: Operand = Operand::Imm(0);
        let mut offset_before = None;
        for (axis, &index) in indices.iter().enumerate() {
            let dim = partition.dim_map[axis];
            if partition.sparse == Some(axis) {
                checks.push((!is_promised(axis)).then_some(BoundsCheck::Indexed));
                inside.push(None);
                continue;
            }
            let shifted = shift.filter(|shift| shift.axis == axis).map_or(0, |shift| shift.elements);
            let bounds = self.tile_bounds(&partition, axis, index, !is_promised(axis), shifted)?;
            let thread = self.thread_coordinate(layout, axis);
            checks.push(bounds.remaining.map(|rem| self.bounds_check(rem, bounds.before, thread)));
            inside.push(bounds.remaining.map(|rem| self.inside_from_start(rem, bounds.before)));
            let thread = if tensor.wide { self.b.cvt(Ty::S64, Ty::S32, CvtMods::default(), thread) } else { thread };
            let position = self.b.add(ty, bounds.start, thread);
            if bounds.before.is_some() && !tensor.wide {
                // The start may be far before the array while other elements are inside: the
                // product needs more than 31 bits.
                let wide = self.b.mul_wide(Ty::S32, position, tensor.strides[dim]);
                offset_before = Some(offset_before.map_or(wide, |sum| self.b.add(Ty::S64, sum, wide)));
            } else {
                offset = self.b.mad(ty, position, tensor.strides[dim], offset);
            }
        }
        if let Some(before) = offset_before {
            let offset64 = self.b.cvt(Ty::S64, Ty::S32, CvtMods::default(), offset);
            offset = self.b.add(Ty::S64, offset64, before);
        }
        let base = self.element_address(&tensor, offset, tensor.wide || offset_before.is_some())?;
        let list = self.indexed_axis(&shape, indices, &tensor)?;
        let (vector, ragged) = match shift {
            Some(shift) => (shift.vector, None),
            None => self.vector_width(&shape, layout, &is_promised)?,
        };
        Ok(ViewAccess {
            padding: partition.padding.map_or(0, |padding| float_codec::padding_bits(tensor.elem, padding)),
            partition,
            layout: layout.clone(),
            mods: MemMods::default(),
            base,
            checks,
            inside,
            list,
            vector,
            ragged,
            misalignment: shift,
            offsets: FxHashMap::default(),
            addresses: FxHashMap::default(),
            masks: FxHashMap::default(),
            combined: FxHashMap::default(),
            owner: None,
            in_strips: false,
        })
    }

    /// Returns the registers per vector, and the axis along which a vector may be partly inside.
    fn vector_width(
        &self,
        shape: &ViewShape,
        layout: &Layout,
        is_promised: &dyn Fn(usize) -> bool,
    ) -> Lowered<(usize, Option<usize>)> {
        let (module, elem) = (self.module, shape.elem);
        let contiguous = contiguous_axis(module, shape).filter(|&axis| shape.sparse != Some(axis));
        let mut vector = 1;
        let mut ragged = None;
        if let Some(axis) = contiguous {
            vector = shape
                .vector(module, &self.info.inference.int_ranges, axis)
                .min(layout.vector_len(axis))
                .min(layout.num_registers());
            let divisor = shape.extent_divisor(module, &self.info.inference.int_ranges, shape.dim_map[axis]);
            if vector > 1 && divisor < vector as u64 && !is_promised(axis) {
                ragged = Some(axis);
            }
        }
        if elem.storage_bits() < 8 {
            if vector < 2 {
                return Err(format!(
                    "an array of {elem} needs a contiguous dimension and tiles of at least 2 along it"
                ));
            }
            if ragged.take().is_some() {
                vector = 2;
            }
            if contiguous.is_some_and(|axis| !shape.begins_whole(axis)) {
                return Err(format!("two {elem} share a byte, and this tile may begin with the second one"));
            }
        }
        Ok((vector, ragged))
    }

    /// Returns `base + offset * element size`. `offset` counts elements, and has 64 bits if it is
    /// `wide`.
    fn element_address(&mut self, tensor: &TensorView, offset: Operand, wide: bool) -> Lowered<Operand> {
        let bits = tensor.elem.storage_bits();
        let bytes = if wide {
            if bits < 8 { self.b.shr(Ty::S64, offset, 1) } else { self.b.mul(Ty::S64, offset, i64::from(bits / 8)) }
        } else if bits < 8 {
            let half = self.b.shr(Ty::S32, offset, 1);
            self.b.cvt(Ty::S64, Ty::S32, CvtMods::default(), half)
        } else {
            self.b.mul_wide(Ty::S32, offset, i64::from(bits / 8))
        };
        Ok(self.b.add(Ty::S64, tensor.base, bytes))
    }

    /// Returns address and mask of the vector that starts in a register, for an asynchronous copy.
    pub fn copy_source(&mut self, access: &mut ViewAccess, register: usize) -> (Addr, Option<Reg>) {
        (self.address(access, register), self.mask(access, register, (0, 0)))
    }

    /// Returns the address of the element in a register.
    pub fn address(&mut self, access: &mut ViewAccess, register: usize) -> Addr {
        let element = access.layout.element(register, 0, 0);
        let tensor = Rc::clone(&access.partition.tensor);
        let bits = i64::from(tensor.elem.storage_bits());
        let mut constant = 0;
        let mut dynamic = vec![0u32; access.partition.tile.len()];
        for (axis, register) in dynamic.iter_mut().enumerate() {
            let coordinate = AxisBits::of(&access.partition.tile, axis).coordinate(element);
            match tensor.strides[access.partition.dim_map[axis]] {
                Operand::Imm(stride) if access.partition.sparse != Some(axis) => {
                    constant += i64::from(coordinate) * stride * bits / 8
                }
                _ => *register = coordinate,
            }
        }
        let base = self.dynamic_address(access, &dynamic);
        self.b.address(base, constant)
    }

    /// Returns the base address plus coordinates along dimensions with a run-time stride.
    ///
    /// Each address is the sum of another address and a step. By strips it is a recently used one:
    /// the coordinates without their lowest bit. Otherwise addresses of the first half would be
    /// live until the second half.
    fn dynamic_address(&mut self, access: &mut ViewAccess, coordinates: &[u32]) -> Operand {
        if let Some(&address) = access.addresses.get(coordinates) {
            return address;
        }
        let sparse = access.partition.sparse;
        let Some(axis) = (0..coordinates.len()).rev().find(|&axis| coordinates[axis] != 0 && sparse != Some(axis))
        else {
            let Some(axis) = sparse else { return access.base };
            let address =
                self.indexed_address(access.indexed_axis(), &access.partition.tensor, access.base, coordinates[axis]);
            access.addresses.insert(coordinates.to_vec(), address);
            return address;
        };
        let coordinate = coordinates[axis];
        let bit = if access.in_strips { coordinate & coordinate.wrapping_neg() } else { 1 << coordinate.ilog2() };
        let mut rest = coordinates.to_vec();
        rest[axis] -= bit;
        let start = self.dynamic_address(access, &rest);
        let step = match access.offsets.get(&(axis, bit)) {
            Some(&step) => step,
            None => {
                let tensor = &access.partition.tensor;
                let stride = tensor.strides[access.partition.dim_map[axis]];
                let bits = i64::from(tensor.elem.storage_bits());
                let bytes = i64::from(bit) * bits / 8;
                let step = if tensor.wide {
                    self.b.mul(Ty::S64, stride, bytes)
                } else {
                    self.b.mul_wide(Ty::S32, stride, bytes)
                };
                access.offsets.insert((axis, bit), step);
                step
            }
        };
        let address = self.b.add(Ty::S64, start, step);
        access.addresses.insert(coordinates.to_vec(), address);
        address
    }

    /// Returns the mask of a vector: `ahead` elements after a register along an axis, inside of the
    /// array, and owned. `None` if the access is unconditional.
    pub fn mask(&mut self, access: &mut ViewAccess, register: usize, (along, ahead): (usize, u32)) -> Option<Reg> {
        let element = access.layout.element(register, 0, 0);
        let checked = (0..access.checks.len()).filter(|&axis| access.checks[axis].is_some());
        let position = |axis: usize| {
            let coordinate = AxisBits::of(&access.partition.tile, axis).coordinate(element);
            if axis == along { coordinate + ahead } else { coordinate }
        };
        let key: Vec<(usize, u32)> = checked.map(|axis| (axis, position(axis))).collect_vec();
        if let Some(&mask) = access.combined.get(&key) {
            return Some(mask);
        }
        let mut mask = access.owner;
        for &(axis, coordinate) in &key {
            let single = match access.masks.get(&(axis, coordinate)) {
                Some(&single) => single,
                None => {
                    let single = match access.checks[axis].expect("a limit along an axis that is checked") {
                        BoundsCheck::Below(limit) => self.b.setp(Cmp::Gt, Ty::S32, limit, coordinate),
                        BoundsCheck::Range { from, count } => {
                            let position = self.b.add(Ty::S32, from, coordinate);
                            self.b.setp(Cmp::Lt, Ty::U32, position, count)
                        }
                        BoundsCheck::Indexed => {
                            self.is_index_inside(access.indexed_axis(), &access.partition.tensor, coordinate)
                        }
                    };
                    access.masks.insert((axis, coordinate), single);
                    single
                }
            };
            mask = Some(match mask {
                Some(mask) => self.b.and(Ty::Pred, mask, single).reg(),
                None => single,
            });
        }
        if let Some(mask) = mask {
            access.combined.insert(key, mask);
        }
        mask
    }

    /// Returns a predicate, equal in the whole CTA: the tile is inside along this axis.
    pub fn is_whole_inside(&mut self, access: &ViewAccess, axis: usize) -> Reg {
        let inside = access.inside[axis].expect("only an axis that is checked is ragged");
        self.b.setp(Cmp::Ge, Ty::S32, inside, access.partition.tile[axis])
    }
}

impl ViewAccess {
    /// Returns the positions along the indexed dimension.
    fn indexed_axis(&self) -> &IndexedAxis {
        self.list.as_ref().expect("a list along an axis that has one")
    }

    /// Accesses single elements from now on.
    pub fn use_single_elements(&mut self) {
        (self.vector, self.ragged) = (1, None);
    }

    /// Returns the number of memory instructions per thread.
    pub fn num_instructions(&self) -> usize {
        let vector = if self.ragged.is_some() { 1 } else { self.vector };
        self.layout.num_registers() / vector
    }

    /// Sets the memory order of each instruction.
    pub fn set_ordering(&mut self, begun: FencedAccess) {
        (self.mods.sem, self.mods.scope) = begun.semantics();
    }

    /// Returns the registers per vector.
    pub fn vector(&self) -> usize {
        self.vector
    }

    /// Returns the element type.
    pub fn element_type(&self) -> DType {
        self.partition.tensor.elem
    }

    /// Returns the extents of the tile.
    pub fn tile(&self) -> &[i64] {
        &self.partition.tile
    }

    /// Returns the element index of a register in the first thread.
    pub fn element_of(&self, register: usize) -> u32 {
        self.layout.element(register, 0, 0)
    }

    /// Prepares accesses by strip iterations, in order. This matters if a thread has many
    /// addresses.
    pub fn use_strips(&mut self) {
        let PartitionView { tensor, tile, dim_map, .. } = &self.partition;
        let moves = |basis: u32| {
            let moves_along = |axis: usize| AxisBits::of(tile, axis).coordinate(basis) != 0;
            (0..tile.len()).any(|axis| tensor.strides[dim_map[axis]].as_imm().is_none() && moves_along(axis))
        };
        let bits = self.layout.register_bases().iter().filter(|&&basis| moves(basis)).count();
        self.in_strips = 1 << bits >= MANY_ADDRESSES;
    }

    /// Returns the summary of the access for remarks.
    pub fn summary(&self) -> DataPath {
        let count = (self.layout.num_registers() / self.vector) as u32;
        DataPath::Direct { accesses: count, bytes: self.vector_bytes(), masked: self.ragged.is_some() }
    }

    /// Returns the bytes of one vector.
    pub fn vector_bytes(&self) -> u32 {
        vector_access::run_bytes(self.partition.tensor.elem, self.vector)
    }

    /// Runs `body` with accesses to single elements.
    ///
    /// Values of either path are forgotten, because the path may not have been executed.
    pub fn element_by_element<T>(&mut self, body: impl FnOnce(&mut ViewAccess) -> T) -> T {
        self.forget();
        let vector = std::mem::replace(&mut self.vector, 1);
        let result = body(self);
        self.vector = vector;
        self.forget();
        result
    }

    fn forget(&mut self) {
        self.offsets.clear();
        self.addresses.clear();
        self.masks.clear();
        self.combined.clear();
    }
}
