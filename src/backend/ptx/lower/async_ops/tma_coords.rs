//! Tensor-map parameters, tile coordinates and the TMA loads of one CTA.
//!
//! A partition view has a tensor map if its array is a kernel argument and the launch guarantees:
//! the base address and all strides but one are multiples of 16 bytes, the other stride is 1.
//! Conditions on run-time values (for example an extent of 0) are checked by the launch, which has
//! a second kernel.
//!
//! In shared memory the contiguous dimension of a box is innermost. The other dimensions follow in
//! the reverse order of the tile.

use crate::backend::ptx::isa::emit::Param;
use crate::backend::ptx::isa::inst::{CvtMods, Operand, Reg, Ty};
use crate::backend::ptx::layout_inference::{ViewShape, contiguous_axis};
use crate::backend::ptx::lower::{Lowered, Lowering};
use crate::backend::ptx::scalar::repr;
use crate::backend::ptx::schedule::{RaggedSlice, box_order, whole_indices};
use crate::backend::ptx::tensor_map::{MAP_ALIGN, MAP_BYTES, MAX_EXTENT, RAGGED_EXTENT, TensorMap, ragged_unit};
use crate::dtype::DType;
use crate::ir::Value;

/// Limit of the rows of a slice from a box on: at least the extent of a tile, and less than that of
/// a ragged dimension.
const MAX_ROWS_LEFT: i64 = 1 << 29;

impl Lowering<'_> {
    /// Returns the generic address of a tensor map, and adds the parameter at its first use.
    ///
    /// The address is computed at each use by two instructions, and so needs no register for the
    /// whole kernel.
    pub fn tensor_map_address(&mut self, map: &TensorMap) -> Reg {
        let param = match self.params.tensor_maps.iter().find(|(known, _)| known == map) {
            Some((_, param)) => *param,
            None => {
                let param = self.b.param(Param::Bytes { size: MAP_BYTES, align: MAP_ALIGN });
                self.params.tensor_maps.push((map.clone(), param));
                param
            }
        };
        self.b.param_address(param)
    }

    /// Returns the coordinates, innermost first, of an element of the tile at `indices`.
    ///
    /// `offsets` is the element in the tile, in the order of its dimensions.
    ///
    /// A tile outside of the index space is outside of the array. If the start of such a tile does
    /// not fit 32 bits, it is replaced by another start outside. The coordinates of a ragged map
    /// follow those of the array.
    pub fn tma_coords(&mut self, view: Value, indices: &[Value], offsets: &[i64]) -> Lowered<Vec<Operand>> {
        let partition = self.partition(view)?;
        let shape = ViewShape::of(self.module, view).ok_or("only partition views have tiles")?;
        let fastest = contiguous_axis(self.module, &shape).ok_or("no dimension is contiguous")?;
        let slice = self.info.ragged_slice(shape.tensor);
        let (mut coords, mut rows) = (Vec::new(), Vec::new());
        for axis in box_order(indices.len(), fastest) {
            let (step, tile) = (partition.steps[axis], partition.tile[axis]);
            // A replacement must also be a multiple of the indices at which boxes may start.
            let whole = if axis == fastest { whole_indices(step, shape.elem.storage_bits() / 8) } else { 1 };
            let index = self.bounded_index(indices[axis], (step, tile), whole)?;
            let start = self.b.mul(Ty::S32, index, step);
            let start = self.b.add(Ty::S32, start, offsets[axis]);
            match slice.filter(|slice| slice.dim == shape.dim_map[axis]) {
                Some(slice) => {
                    let unit = ragged_unit(coords.len(), u64::from(shape.elem.storage_bits() / 8));
                    let [along, around] = self.ragged_coords(&slice, start)?;
                    coords.push(along);
                    let around = if unit > 1 { self.b.div(Ty::U32, around, unit as i64) } else { around };
                    rows = vec![around, Operand::Imm((RAGGED_EXTENT / unit) as i64)];
                }
                None => coords.push(start),
            }
        }
        coords.extend(rows);
        Ok(coords)
    }

    /// Returns the coordinates of a row of a slice: along its dimension, and along that of whole
    /// rows. A row before the slice is one of a box that is completely before it, and is replaced
    /// by one after the slice.
    fn ragged_coords(&mut self, slice: &RaggedSlice, row: Operand) -> Lowered<[Operand; 2]> {
        let length = self.row_number(slice.length)?;
        let begin = slice.begin.map(|begin| self.row_number(begin)).transpose()?;
        let row = self.b.min(Ty::U32, row, length);
        let left = self.b.sub(Ty::S32, length, row);
        // No box has more rows.
        let left = self.b.min(Ty::U32, left, MAX_ROWS_LEFT);
        let along = self.b.sub(Ty::S32, RAGGED_EXTENT as i64, left);
        let mut around = self.b.add(Ty::S32, row, left);
        if let Some(begin) = begin {
            around = self.b.add(Ty::S32, around, begin);
        }
        Ok([along, around])
    }

    /// Returns a number of rows as 32 bits. It does not exceed the extent of an array with a map.
    fn row_number(&mut self, value: Value) -> Lowered<Operand> {
        let number = self.scalar(value)?;
        Ok(match self.module.dtype(value) {
            DType::I64 => self.b.cvt(Ty::U32, Ty::U64, CvtMods::default(), number),
            _ => number,
        })
    }

    /// Returns a tile index as 32 bits. An index far outside is replaced by the nearest multiple of
    /// `whole` outside.
    ///
    /// Tiles have `tile` elements, and start every `step` elements.
    fn bounded_index(&mut self, index: Value, (step, tile): (i64, i64), whole: i64) -> Lowered<Operand> {
        let dtype = self.module.dtype(index);
        let range = self.info.inference.int_ranges.range(index);
        // The last index before the array, and the first one after the longest array.
        let (least, most) = (-(tile + step - 1).div_euclid(step), (MAX_EXTENT as i64).div_euclid(step) + 1);
        let (least, most) = (least.div_euclid(whole) * whole, (most + whole - 1).div_euclid(whole) * whole);
        let operand = self.scalar(index)?;
        let mut operand = repr::sign_extended(&mut self.b, dtype, operand);
        let ty = match dtype {
            DType::I8 | DType::I16 | DType::I32 => Ty::S32,
            DType::I64 => Ty::S64,
            other => return Err(format!("an index of type {other}")),
        };
        if range.is_none_or(|range| range.lo < least) {
            operand = self.b.max(ty, operand, least);
        }
        if range.is_none_or(|range| range.hi > most) {
            operand = self.b.min(ty, operand, most);
        }
        Ok(if ty == Ty::S64 { self.b.cvt(Ty::U32, Ty::U64, CvtMods::default(), operand) } else { operand })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::ptx::CompileOptions;
    use crate::backend::ptx::isa::emit;
    use crate::backend::ptx::isa::inst::{Addr, RegClass};
    use crate::backend::ptx::layout_inference::Inference;
    use crate::backend::ptx::lower::driver::start;
    use crate::backend::ptx::plan::planned_kernel::PlannedKernel;
    use crate::backend::ptx::ptxas_test::assemble;
    use crate::backend::ptx::tensor_map::{Dim, MapElement, Number, Swizzle};
    use crate::backend::ptx::tests::Kernel;
    use crate::ir::{Module, Opcode, Padding, Type};
    use crate::target::Target;

    /// Lowers the views of a kernel, and calls `check` with the partition views in order.
    fn with_views<T>(
        module: &Module,
        target: Target,
        tma: bool,
        check: impl FnOnce(&mut Lowering<'_>, &[Value]) -> T,
    ) -> T {
        let entry = &module.entries[0];
        let options = CompileOptions { tma, ..CompileOptions::default() };
        let inference = Inference::run(module, entry, target, 4, options.optimizations);
        let mut lowering = start(PlannedKernel::unscheduled(module, entry, inference, &options), "k");
        lowering.entry_params(entry);
        let ops = |code| module.block(entry.body).ops.iter().copied().filter(move |&id| module.op(id).code == code);
        for code in [Opcode::GetTileBlockId, Opcode::MakeTensorView, Opcode::MakePartitionView] {
            for id in ops(code) {
                lowering.lower_part(id).unwrap();
            }
        }
        let views: Vec<Value> = ops(Opcode::MakePartitionView).map(|id| module.op(id).results[0]).collect();
        check(&mut lowering, &views)
    }

    /// A kernel with one f16 matrix, partitioned into tiles of 128 by 64 with and without
    /// transposition.
    fn matrix(aligned: bool) -> Kernel {
        let mut k = Kernel::new("k");
        let array = k.array(DType::F16, 2, aligned);
        k.bids();
        k.partition(&array, &[128, 64], &[0, 1]);
        k.partition(&array, &[64, 128], &[1, 0]);
        k
    }

    #[test]
    fn promised_alignment_makes_a_map() {
        let module = matrix(true).finish();
        with_views(&module, Target::SM_90A, true, |lowering, views| {
            let map = lowering.info.tma_map((views[0], &[]), &[128, 64], Swizzle::B128, false).unwrap();
            let param = |index| Number::Param { index, bytes: 4 };
            assert_eq!((map.base, map.element), (0, MapElement::U16));
            assert_eq!(map.dims[0], Dim { extent: param(2), stride: Number::Constant(1), boxed: 64 });
            assert_eq!(map.dims[1], Dim { extent: param(1), stride: param(3), boxed: 128 });
            // The same array with permuted dimensions has the same map.
            let transposed = lowering.info.tma_map((views[1], &[]), &[64, 128], Swizzle::B128, false).unwrap();
            assert_eq!(transposed, map);
            // Box shapes that the hardware lacks, and a type that is not f32.
            assert!(lowering.info.tma_map((views[0], &[]), &[128, 128], Swizzle::B128, false).is_err());
            assert!(lowering.info.tma_map((views[0], &[]), &[512, 64], Swizzle::B128, false).is_err());
            assert!(lowering.info.tma_map((views[0], &[]), &[128, 64], Swizzle::B128, true).is_err());
        });
    }

    #[test]
    fn boxes_begin_at_multiples_of_sixteen_bytes() {
        let has_map = |dtype, columns, step| {
            let mut k = Kernel::new("k");
            let array = k.array(dtype, 2, true);
            let [row, column, _] = k.bids()[..] else { panic!() };
            let step = k.index(step);
            let column = k.op(Opcode::MulI, &[column, step]);
            k.partition(&array, &[128, columns], &[0, 1]);
            let module = k.finish();
            with_views(&module, Target::SM_90A, true, |lowering, views| {
                lowering.info.tma_map((views[0], &[row, column]), &[128, 16], Swizzle::None, false).is_ok()
            })
        };
        assert!(has_map(DType::F16, 40, 1), "80 bytes");
        assert!(has_map(DType::I8, 48, 1));
        assert!(!has_map(DType::I8, 40, 1));
        assert!(!has_map(DType::F32, 6, 1), "24 bytes");
        assert!(has_map(DType::I8, 40, 2), "every second tile");
        assert_eq!(
            [(40, 1), (48, 1), (40, 2), (6, 4), (5, 8)].map(|(step, bytes)| whole_indices(step, bytes)),
            [2, 1, 1, 2, 2]
        );
        // The replacement of an index far outside is a multiple, too.
        let mut k = Kernel::new("k");
        let array = k.array(DType::F16, 2, true);
        let [first, second, _] = k.bids()[..] else { panic!() };
        let view = k.partition(&array, &[128, 64], &[0, 1]);
        k.load(view, &[first, second]);
        let text = with_views(&k.finish(), Target::SM_90A, true, |lowering, _| {
            lowering.bounded_index(first, (40, 40), 2).unwrap();
            emit::module(Target::SM_90A, &[], std::slice::from_ref(lowering.b.function()))
        });
        let most = (MAX_EXTENT as i64 / 40 + 1 + 1) / 2 * 2;
        assert!(text.contains(&format!(", {most};")), "{text}");
    }

    #[test]
    fn without_promises_or_tma_there_is_no_map() {
        let map = |aligned, target, tma| {
            let module = matrix(aligned).finish();
            with_views(&module, target, tma, |lowering, views| {
                lowering.info.tma_map((views[0], &[]), &[128, 64], Swizzle::B128, false)
            })
        };
        assert!(map(true, Target::SM_90A, true).is_ok());
        assert!(map(false, Target::SM_90A, true).is_err());
        assert!(map(true, Target::SM_80, true).is_err());
        assert!(map(true, Target::SM_90A, false).is_err());
    }

    #[test]
    fn padding_is_for_loads_only() {
        let mut k = Kernel::new("k");
        let array = k.array(DType::F32, 2, true);
        let view = k.b.module.ty_id(array.view);
        let padding = Some(Padding::NegInf);
        let ty = Type::PartitionView { tile: vec![64, 32], view, dim_map: vec![0, 1], padding };
        let ty = k.b.module.intern(ty);
        k.b.simple(Opcode::MakePartitionView, &[array.view], vec![], ty);
        let module = k.finish();
        with_views(&module, Target::SM_90A, true, |lowering, views| {
            let padded = lowering.info.tma_map((views[0], &[]), &[64, 32], Swizzle::B128, false);
            assert_eq!(padded.unwrap_err(), "TMA pads with zeros alone");
            assert!(lowering.info.tma_store_map((views[0], &[]), &[64, 32], Swizzle::B128, false).is_ok());
        });
    }

    #[test]
    fn stores_of_boxes_assemble() {
        let mut k = Kernel::new("k");
        let array = k.array(DType::F16, 2, true);
        let [row, column, _] = k.bids()[..] else { panic!() };
        let plain = k.partition(&array, &[128, 64], &[0, 1]);
        let transposed = k.partition(&array, &[64, 128], &[1, 0]);
        k.load(plain, &[row, column]);
        let module = k.finish();
        let text = with_views(&module, Target::SM_90A, true, |lowering, views| {
            assert_eq!(views, [plain, transposed]);
            let map = lowering.info.tma_map((plain, &[]), &[128, 64], Swizzle::B128, false).unwrap();
            let coords = lowering.tma_coords(plain, &[row, column], &[0, 0]).unwrap();
            let further = lowering.tma_coords(transposed, &[column, row], &[0, 64]).unwrap();
            for coords in [coords, further] {
                let address = lowering.tensor_map_address(&map);
                let source = Addr::new(lowering.b.reg(Operand::Smem, RegClass::B32), 1024);
                lowering.b.tma_store(address, &coords, &source);
            }
            assert_eq!(lowering.params.tensor_maps.len(), 1, "equal maps are one parameter");
            emit::module(Target::SM_90A, &[], std::slice::from_ref(lowering.b.function()))
        });
        assert!(text.contains(".param .align 64 .b8 arg5[128]"), "{text}");
        // The start of a tile may overflow along rows; along columns there are at most 65535 tiles.
        assert_eq!(text.matches("min.s32").count(), 2, "{text}");
        assert!(!text.contains("max.s32"), "{text}");
        assemble(Target::SM_90A, &text);
    }
}
