//! What the vectors of an access to a view share, and the address and mask of each.
//!
//! Along tile dimension d a tile starts at `index * step` and has `rem = extent - start` elements
//! inside the array (none if the index is outside of the index space). A thread compares the
//! coordinate of each of its vectors with `rem`. Where the extent is known to be divisible by the
//! vector, a vector is inside or outside as a whole; else a block whose tile is entirely inside takes
//! the wide path and only the others go element by element. Along a dimension that the kernel promises to stay
//! inside of there is nothing to compare.

use std::collections::HashMap;
use std::rc::Rc;

use super::listed::List;
use super::order::Begun;
use super::place::Limit;
use super::view::{Partition, TensorView};
use super::{Lowered, Lowering, vector};
use crate::backend::ptx::isa::inst::{Addr, Cmp, CvtMods, MemMods, Operand, Reg, Ty};
use crate::backend::ptx::layout_inference::{AxisBits, ViewShape, contiguous_axis};
use crate::backend::ptx::remarks::Way;
use crate::codec;
use crate::dtype::DType;
use crate::ir::{Attr, AttrKind, OpId, Padding, Rounding, Value};
use crate::layout::Layout;

/// Addresses of one thread in one tile that are too many to be held at once.
const MANY_ADDRESSES: usize = 32;

/// The part of an access that all of its vectors share.
pub struct Access {
    partition: Partition,
    pub layout: Layout,
    pub mods: MemMods,
    /// Bits that a load gives outside of the array.
    pub otherwise: u64,
    /// Address of the thread's element in slot 0 (B64).
    base: Operand,
    /// Where the array is, from the thread's coordinate, by tile dimension; none along those that the tile is promised to
    /// be inside of.
    limits: Vec<Option<Limit>>,
    /// Elements inside the array from the start of the tile, by tile dimension, as the limits.
    inside: Vec<Option<Operand>>,
    /// Positions along the dimension that has them listed.
    list: Option<List>,
    /// Slots of one vector.
    vector: usize,
    /// A vector may be partly inside.
    pub ragged: Option<usize>,
    /// The tile begins beside a vector.
    pub shift: Option<Shift>,
    offsets: HashMap<(usize, u32), Operand>,
    addresses: HashMap<Vec<u32>, Operand>,
    masks: HashMap<(usize, u32), Reg>,
    combined: HashMap<Vec<(usize, u32)>, Reg>,
    /// Threads that write, where several hold the same element.
    pub owner: Option<Reg>,
    /// Slots come a few at a time, with other work between them.
    in_pieces: bool,
}

/// How a tile begins beside a vector.
#[derive(Clone, Copy, Debug)]
pub struct Shift {
    /// The axis of the tile that is contiguous in memory.
    pub axis: usize,
    /// Elements of a vector.
    pub vector: usize,
    /// Elements from the beginning of a vector to that of the tile; at least 1.
    pub elements: usize,
}

impl Lowering<'_> {
    pub fn access(
        &mut self,
        id: OpId,
        view: Value,
        indices: &[Value],
        layout: &Layout,
        shift: Option<Shift>,
    ) -> Lowered<Access> {
        let module = self.module;
        let promised = match module.op(id).attr(AttrKind::Inbounds) {
            Some(Attr::Inbounds(promised)) => promised.as_slice(),
            _ => &[],
        };
        let is_promised = |axis: usize| promised.get(axis) == Some(&true);
        let partition = self.partition(view)?;
        let shape = ViewShape::at(module, &self.context.inference.facts, view, indices)
            .ok_or("only views of tiles can be accessed")?;
        let tensor = Rc::clone(&partition.tensor);
        let ty = tensor.index_type();
        let (mut limits, mut inside) = (Vec::new(), Vec::new());
        let mut offset: Operand = Operand::Imm(0);
        let mut offset_before = None;
        for (axis, &index) in indices.iter().enumerate() {
            let dim = partition.dim_map[axis];
            if partition.sparse == Some(axis) {
                limits.push((!is_promised(axis)).then_some(Limit::Listed));
                inside.push(None);
                continue;
            }
            let shifted = shift.filter(|shift| shift.axis == axis).map_or(0, |shift| shift.elements);
            let place = self.place(&partition, axis, index, !is_promised(axis), shifted)?;
            let thread = self.thread_coordinate(layout, axis);
            limits.push(place.rem.map(|rem| self.limit(rem, place.before, thread)));
            inside.push(place.rem.map(|rem| self.inside_from_start(rem, place.before)));
            let thread = if tensor.wide { self.b.cvt(Ty::S64, Ty::S32, CvtMods::default(), thread) } else { thread };
            let position = self.b.add(ty, place.start, thread);
            if place.before.is_some() && !tensor.wide {
                // Far before the array, while other elements of the thread are inside: more than 31 bits.
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
        let list = self.list(&shape, layout, indices, &tensor)?;
        let (vector, ragged) = match shift {
            Some(shift) => (shift.vector, None),
            None => self.width(&shape, layout, &is_promised)?,
        };
        Ok(Access {
            otherwise: padding_bits(tensor.elem, partition.padding),
            partition,
            layout: layout.clone(),
            mods: MemMods::default(),
            base,
            limits,
            inside,
            list,
            vector,
            ragged,
            shift,
            offsets: HashMap::new(),
            addresses: HashMap::new(),
            masks: HashMap::new(),
            combined: HashMap::new(),
            owner: None,
            in_pieces: false,
        })
    }

    /// Slots of one vector, and the axis along which one may be partly inside.
    fn width(
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
                .vector(module, &self.context.inference.facts, axis)
                .min(layout.vector_len(axis))
                .min(layout.num_registers());
            let divisor = shape.extent_divisor(module, &self.context.inference.facts, shape.dim_map[axis]);
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

    /// `base + offset * element size`, where `offset` counts elements, in 64 bits if it is `wide`.
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

    /// Address and mask of the vector that starts in this slot, for an asynchronous copy.
    pub fn copy_source(&mut self, access: &mut Access, slot: usize) -> (Addr, Option<Reg>) {
        (self.address(access, slot), self.mask(access, slot, (0, 0)))
    }

    /// The address of the element in this slot.
    pub fn address(&mut self, access: &mut Access, slot: usize) -> Addr {
        let element = access.layout.element(slot, 0, 0);
        let tensor = Rc::clone(&access.partition.tensor);
        let bits = i64::from(tensor.elem.storage_bits());
        let mut constant = 0;
        let mut dynamic = vec![0u32; access.partition.tile.len()];
        for (axis, slot) in dynamic.iter_mut().enumerate() {
            let coordinate = AxisBits::of(&access.partition.tile, axis).coordinate(element);
            match tensor.strides[access.partition.dim_map[axis]] {
                Operand::Imm(stride) if access.partition.sparse != Some(axis) => {
                    constant += i64::from(coordinate) * stride * bits / 8
                }
                _ => *slot = coordinate,
            }
        }
        let base = self.dynamic_address(access, &dynamic);
        self.b.address(base, constant)
    }

    /// The base plus coordinates along dimensions of run-time stride; each address is one sum away from
    /// another one. In pieces it is one that was needed lately: of coordinates that are counted up, all but the lowest
    /// bit. Else addresses of the first half would be held until the second one.
    fn dynamic_address(&mut self, access: &mut Access, coordinates: &[u32]) -> Operand {
        if let Some(&address) = access.addresses.get(coordinates) {
            return address;
        }
        let sparse = access.partition.sparse;
        let Some(axis) = (0..coordinates.len()).rev().find(|&axis| coordinates[axis] != 0 && sparse != Some(axis))
        else {
            let Some(axis) = sparse else { return access.base };
            let address = self.listed_address(access.list(), &access.partition.tensor, access.base, coordinates[axis]);
            access.addresses.insert(coordinates.to_vec(), address);
            return address;
        };
        let coordinate = coordinates[axis];
        let bit = if access.in_pieces { coordinate & coordinate.wrapping_neg() } else { 1 << coordinate.ilog2() };
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

    /// The predicate under which the vector that starts so many elements after this slot's along an axis is inside (and
    /// owned).
    pub fn mask(&mut self, access: &mut Access, slot: usize, (along, ahead): (usize, u32)) -> Option<Reg> {
        let element = access.layout.element(slot, 0, 0);
        let checked = (0..access.limits.len()).filter(|&axis| access.limits[axis].is_some());
        let position = |axis: usize| {
            let coordinate = AxisBits::of(&access.partition.tile, axis).coordinate(element);
            if axis == along { coordinate + ahead } else { coordinate }
        };
        let key: Vec<(usize, u32)> = checked.map(|axis| (axis, position(axis))).collect();
        if let Some(&mask) = access.combined.get(&key) {
            return Some(mask);
        }
        let mut mask = access.owner;
        for &(axis, coordinate) in &key {
            let single = match access.masks.get(&(axis, coordinate)) {
                Some(&single) => single,
                None => {
                    let single = match access.limits[axis].expect("a limit along an axis that is checked") {
                        Limit::Before(limit) => self.b.setp(Cmp::Gt, Ty::S32, limit, coordinate),
                        Limit::Within { from, count } => {
                            let position = self.b.add(Ty::S32, from, coordinate);
                            self.b.setp(Cmp::Lt, Ty::U32, position, count)
                        }
                        Limit::Listed => self.is_listed_inside(access.list(), &access.partition.tensor, coordinate),
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

    /// True (for the whole block) if the tile is inside along this axis.
    pub fn whole(&mut self, access: &Access, axis: usize) -> Reg {
        let inside = access.inside[axis].expect("only an axis that is checked is ragged");
        self.b.setp(Cmp::Ge, Ty::S32, inside, access.partition.tile[axis])
    }
}

impl Access {
    /// The positions along the dimension that has them listed.
    fn list(&self) -> &List {
        self.list.as_ref().expect("a list along an axis that has one")
    }

    /// Element by element from now on.
    pub fn go_one_by_one(&mut self) {
        (self.vector, self.ragged) = (1, None);
    }

    /// Accesses of a thread.
    pub fn num_instructions(&self) -> usize {
        let vector = if self.ragged.is_some() { 1 } else { self.vector };
        self.layout.num_registers() / vector
    }

    /// Each of them says what an ordered access says.
    pub fn say(&mut self, begun: Begun) {
        (self.mods.sem, self.mods.scope) = begun.semantics();
    }

    /// The address of the first element, to change it.
    pub fn base_mut(&mut self) -> &mut Operand {
        &mut self.base
    }

    /// Slots of one vector.
    pub fn vector(&self) -> usize {
        self.vector
    }

    /// Type of the elements.
    pub fn element_type(&self) -> DType {
        self.partition.tensor.elem
    }

    /// Extents of the tile.
    pub fn tile(&self) -> &[i64] {
        &self.partition.tile
    }

    /// The number, in the tile, of the element in this slot of the first thread.
    pub fn place_of(&self, slot: usize) -> u32 {
        self.layout.element(slot, 0, 0)
    }

    /// Slots will be asked for a few at a time, in order. That matters where a thread has many addresses.
    pub fn go_in_pieces(&mut self) {
        let Partition { tensor, tile, dim_map, .. } = &self.partition;
        let moves = |image: u32| {
            let moves_along = |axis: usize| AxisBits::of(tile, axis).coordinate(image) != 0;
            (0..tile.len()).any(|axis| tensor.strides[dim_map[axis]].as_imm().is_none() && moves_along(axis))
        };
        let bits = self.layout.register_images().iter().filter(|&&image| moves(image)).count();
        self.in_pieces = 1 << bits >= MANY_ADDRESSES;
    }

    /// What the accesses of a thread are, for people.
    pub fn way(&self) -> Way {
        let count = (self.layout.num_registers() / self.vector) as u32;
        Way::Threads { count, bytes: self.vector_bytes(), ragged: self.ragged.is_some() }
    }

    /// Bytes of one vector.
    pub fn vector_bytes(&self) -> u32 {
        vector::run_bytes(self.partition.tensor.elem, self.vector)
    }

    /// Runs `body` on the path that accesses single elements. What either path computes is forgotten:
    /// it need not have been taken.
    pub fn element_by_element<T>(&mut self, body: impl FnOnce(&mut Access) -> T) -> T {
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

/// The bits that a load gives outside of the array.
fn padding_bits(dtype: DType, padding: Option<Padding>) -> u64 {
    let value = match padding {
        None | Some(Padding::Zero) => return 0,
        Some(Padding::NegZero) => -0.0,
        Some(Padding::NaN) => f64::NAN,
        Some(Padding::PosInf) => f64::INFINITY,
        Some(Padding::NegInf) => f64::NEG_INFINITY,
    };
    codec::encode(dtype, value, Rounding::NearestEven)
}
