//! Tensor maps as parameters, and the coordinates of tiles.
//! A partition view qualifies when its array is one of the entry's (so that the launch can describe it) and
//! what the launch promises about it is enough for every array of that form: the address and all strides
//! but one are multiples of 16 bytes, the other one is 1. What only the numbers of a launch decide
//! (an extent of 0, say) is for the launch, which has another kernel for it.
//!
//! A box in shared memory has the contiguous dimension innermost; the others follow in the order of the
//! tile, later ones first.

use super::{Lowered, Lowering};
use crate::backend::ptx::isa::emit::Param;
use crate::backend::ptx::isa::inst::{CvtMods, Operand, Reg, Ty};
use crate::backend::ptx::layout_inference::{ViewShape, contiguous_axis};
use crate::backend::ptx::scalar::repr;
use crate::backend::ptx::schedule::{box_order, whole_indices};
use crate::backend::ptx::tensor_map::{MAP_ALIGN, MAP_BYTES, MAX_EXTENT, TensorMap};
use crate::dtype::DType;
use crate::ir::Value;

impl Lowering<'_> {
    /// The generic address of a map; the kernel takes each map once. Two cheap instructions at each use,
    /// rather than a register from the entry: it is the same in every role and branch.
    pub fn tensor_map_address(&mut self, map: &TensorMap) -> Reg {
        let param = match self.tensor_maps.iter().find(|(known, _)| known == map) {
            Some((_, param)) => *param,
            None => {
                let param = self.b.param(Param::Bytes { size: MAP_BYTES, align: MAP_ALIGN });
                self.tensor_maps.push((map.clone(), param));
                param
            }
        };
        self.b.param_address(param)
    }

    /// Coordinates, innermost first, of the element `offsets` (in the order of the tile's dimensions) of the
    /// tile at `indices`.
    ///
    /// A tile outside of the index space lies outside of the array, however far: an index whose start does
    /// not fit 32 bits is replaced by one that is outside, too.
    pub fn tma_coords(&mut self, view: Value, indices: &[Value], offsets: &[i64]) -> Lowered<Vec<Operand>> {
        let partition = self.partition(view)?;
        let shape = ViewShape::of(self.module, view).ok_or("only partition views have tiles")?;
        let fastest = contiguous_axis(self.module, &shape).ok_or("no dimension is contiguous")?;
        let mut coords = Vec::new();
        for axis in box_order(indices.len(), fastest) {
            let (step, tile) = (partition.steps[axis], partition.tile[axis]);
            // An index that replaces another one is the index of a tile that may be a box's, too.
            let whole = if axis == fastest { whole_indices(step, shape.elem.storage_bits() / 8) } else { 1 };
            let index = self.near_index(indices[axis], (step, tile), whole)?;
            let start = self.b.mul(Ty::S32, index, step);
            coords.push(self.b.add(Ty::S32, start, offsets[axis]));
        }
        Ok(coords)
    }

    /// A tile index as 32 bits; one far outside is replaced by one not so far outside, a multiple of `whole`. Tiles have
    /// `tile` elements and start every `step`.
    fn near_index(&mut self, index: Value, (step, tile): (i64, i64), whole: i64) -> Lowered<Operand> {
        let dtype = self.module.dtype(index);
        let range = self.context.inference.facts.range(index);
        // The last index before the array, and the first one behind the longest array.
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
    use super::super::{Lowering, start};
    use super::*;
    use crate::backend::ptx::CompileOptions;
    use crate::backend::ptx::isa::emit;
    use crate::backend::ptx::isa::inst::{Addr, RegClass};
    use crate::backend::ptx::layout_inference::Inference;
    use crate::backend::ptx::ptxas_test::assemble;
    use crate::backend::ptx::tensor_map::{Dim, MapElement, Number, Swizzle};
    use crate::backend::ptx::tests::Kernel;
    use crate::ir::{Module, Opcode, Padding, Type};
    use crate::target::Target;

    /// Lowers the views of a kernel, and gives them to `check` with the partition views in order.
    fn with_views<T>(
        module: &Module,
        target: Target,
        tma: bool,
        check: impl FnOnce(&mut Lowering<'_>, &[Value]) -> T,
    ) -> T {
        let entry = &module.entries[0];
        let options = CompileOptions { tma, ..CompileOptions::default() };
        let inference = Inference::run(module, entry, target, 4);
        let mut lowering = start(module, entry, inference, "k", &options);
        lowering.entry_params(entry);
        let ops = |code| module.block(entry.body).ops.iter().copied().filter(move |&id| module.op(id).code == code);
        for code in [Opcode::GetTileBlockId, Opcode::MakeTensorView, Opcode::MakePartitionView] {
            for id in ops(code) {
                lowering.op(id).unwrap();
            }
        }
        let views: Vec<Value> = ops(Opcode::MakePartitionView).map(|id| module.op(id).results[0]).collect();
        check(&mut lowering, &views)
    }

    /// One f16 matrix, cut into tiles of 128 by 64 as it is and transposed.
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
            let map = lowering.context.tma_map((views[0], &[]), &[128, 64], Swizzle::B128, false).unwrap();
            let param = |index| Number::Param { index, bytes: 4 };
            assert_eq!((map.base, map.element), (0, MapElement::U16));
            assert_eq!(map.dims[0], Dim { extent: param(2), stride: Number::Constant(1), boxed: 64 });
            assert_eq!(map.dims[1], Dim { extent: param(1), stride: param(3), boxed: 128 });
            // The same array under another order of its dimensions: the same map.
            let transposed = lowering.context.tma_map((views[1], &[]), &[64, 128], Swizzle::B128, false).unwrap();
            assert_eq!(transposed, map);
            // Boxes that the hardware does not have, and a type that is not f32.
            assert!(lowering.context.tma_map((views[0], &[]), &[128, 128], Swizzle::B128, false).is_none());
            assert!(lowering.context.tma_map((views[0], &[]), &[512, 64], Swizzle::B128, false).is_none());
            assert!(lowering.context.tma_map((views[0], &[]), &[128, 64], Swizzle::B128, true).is_none());
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
                lowering.context.tma_map((views[0], &[row, column]), &[128, 16], Swizzle::None, false).is_some()
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
        // An index far outside is replaced by one that is a multiple, too.
        let mut k = Kernel::new("k");
        let array = k.array(DType::F16, 2, true);
        let [first, second, _] = k.bids()[..] else { panic!() };
        let view = k.partition(&array, &[128, 64], &[0, 1]);
        k.load(view, &[first, second]);
        let text = with_views(&k.finish(), Target::SM_90A, true, |lowering, _| {
            lowering.near_index(first, (40, 40), 2).unwrap();
            emit::module(Target::SM_90A, &[], std::slice::from_ref(lowering.b.function()))
        });
        let most = (MAX_EXTENT as i64 / 40 + 1 + 1) / 2 * 2;
        assert!(text.contains(&format!(", {most};")), "{text}");
    }

    #[test]
    fn without_promises_or_engine_there_is_no_map() {
        let map = |aligned, target, tma| {
            let module = matrix(aligned).finish();
            with_views(&module, target, tma, |lowering, views| {
                lowering.context.tma_map((views[0], &[]), &[128, 64], Swizzle::B128, false)
            })
        };
        assert!(map(true, Target::SM_90A, true).is_some());
        assert!(map(false, Target::SM_90A, true).is_none());
        assert!(map(true, Target::SM_80, true).is_none());
        assert!(map(true, Target::SM_90A, false).is_none());
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
            assert!(lowering.context.tma_map((views[0], &[]), &[64, 32], Swizzle::B128, false).is_none());
            assert!(lowering.context.tma_store_map((views[0], &[]), &[64, 32], Swizzle::B128, false).is_some());
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
            let map = lowering.context.tma_map((plain, &[]), &[128, 64], Swizzle::B128, false).unwrap();
            let coords = lowering.tma_coords(plain, &[row, column], &[0, 0]).unwrap();
            let further = lowering.tma_coords(transposed, &[column, row], &[0, 64]).unwrap();
            for coords in [coords, further] {
                let address = lowering.tensor_map_address(&map);
                let source = Addr::new(lowering.b.reg(Operand::Smem, RegClass::B32), 1024);
                lowering.b.tma_store(address, &coords, &source);
            }
            assert_eq!(lowering.tensor_maps.len(), 1, "equal maps are one parameter");
            emit::module(Target::SM_90A, &[], std::slice::from_ref(lowering.b.function()))
        });
        assert!(text.contains(".param .align 64 .b8 arg5[128]"), "{text}");
        // There may be so many rows that the start of a tile wraps; columns are at most 65535 tiles.
        assert_eq!(text.matches("min.s32").count(), 2, "{text}");
        assert!(!text.contains("max.s32"), "{text}");
        assemble(Target::SM_90A, &text);
    }
}
