//! Target requirements: element types and ops that only some architectures support.
//!
//! The assembler reports them, too. The check here precedes the output, and names places in the
//! user's source. Source: `tileiras` 13.5, which rejects these types at each occurrence.

use std::ops::RangeInclusive;

use rustc_hash::FxHashSet;

use crate::dtype::DType;
use crate::error::{Diagnostic, Error, Result};
use crate::ir::{AtomicMode, Attr, AttrKind, Elem, Loc, Module, Opcode, Type, TypeId, Value};
use crate::target::Target;

/// Checks that the target supports all features of the module.
///
/// # Errors
/// [`Error::Unsupported`] with the first use of each unsupported feature.
pub(super) fn check(module: &Module, target: Target) -> Result<()> {
    let mut search = Search { module, target, seen: FxHashSet::default(), missing: Vec::new() };
    for global in &module.globals {
        search.of_type(global.ty, Loc::UNKNOWN);
    }
    for entry in &module.entries {
        // Parameters are reported at their uses, so unused ones are searched last.
        module.walk(entry.body, &mut |id| search.of_op(id));
        module.block(entry.body).args.iter().for_each(|&arg| search.of_type(module.ty_id(arg), entry.loc));
    }
    if search.missing.is_empty() { Ok(()) } else { Err(Error::Unsupported(search.missing)) }
}

struct Search<'m> {
    module: &'m Module,
    target: Target,
    seen: FxHashSet<String>,
    missing: Vec<Diagnostic>,
}

impl Search<'_> {
    fn of_op(&mut self, id: crate::ir::OpId) {
        let op = self.module.op(id);
        if let Some(archs) = op_archs(op.code) {
            self.need(format!("`{}`", op.code.spec().name), &archs, op.loc);
        }
        if op.attr(AttrKind::AtomicMode) == Some(&Attr::AtomicMode(AtomicMode::AddF))
            && op.operands.iter().any(|&v| *self.module.ty(v) == Type::tile(DType::BF16, self.shape(v)))
        {
            self.need("element type bf16 of an atomic addition".to_string(), &(90..=u32::MAX), op.loc);
        }
        op.results.iter().for_each(|&value| self.of_type(self.module.ty_id(value), op.loc));
        for &region in &op.regions {
            self.module.block(region).args.iter().for_each(|&arg| self.of_type(self.module.ty_id(arg), op.loc));
        }
    }

    fn shape(&self, value: Value) -> Vec<i64> {
        self.module.ty(value).as_tile().map_or_else(Vec::new, |(_, shape)| shape.to_vec())
    }

    fn of_type(&mut self, ty: TypeId, loc: Loc) {
        let dtype = match *self.module.type_of(ty) {
            Type::Tile { elem: Elem::Num(dtype), .. } | Type::Tile { elem: Elem::Ptr { pointee: dtype, .. }, .. } => {
                dtype
            }
            Type::TensorView { elem, .. } => elem,
            // The tensor view below them is the result of an op.
            Type::PartitionView { .. } | Type::StridedView { .. } | Type::GatherScatterView { .. } | Type::Token => {
                return;
            }
        };
        if let Some(archs) = type_archs(dtype) {
            self.need(format!("element type {dtype}"), &archs, loc);
        }
    }

    fn need(&mut self, what: String, archs: &RangeInclusive<u32>, loc: Loc) {
        if archs.contains(&self.target.arch) || !self.seen.insert(what.clone()) {
            return;
        }
        let others = match (*archs.start(), *archs.end()) {
            (first, u32::MAX) => format!("sm_{first} and later have it"),
            (first, last) if first == last => format!("sm_{first} has it"),
            (first, last) => format!("sm_{first} to sm_{last} have it"),
        };
        let message = format!("{what} does not exist on {}: {others}", self.target);
        self.missing.push(Diagnostic::new(message, self.module.location(loc).cloned()));
    }
}

/// Returns the architectures that support an element type; `None` for all.
fn type_archs(dtype: DType) -> Option<RangeInclusive<u32>> {
    use DType::{
        BF16, F4E2M1FN, F8E4M3FN, F8E5M2, F8E5M3FNU, F8E8M0FNU, F16, F32, F64, I1, I4, I8, I16, I32, I64, TF32,
    };
    match dtype {
        F8E4M3FN | F8E5M2 => Some(89..=u32::MAX),
        F8E8M0FNU | F4E2M1FN => Some(100..=u32::MAX),
        F8E5M3FNU => Some(107..=107),
        I1 | I4 | I8 | I16 | I32 | I64 | F16 | BF16 | F32 | TF32 | F64 => None,
    }
}

/// Returns the architectures that support an op; `None` for all, or for those that support its
/// types.
fn op_archs(code: Opcode) -> Option<RangeInclusive<u32>> {
    matches!(code, Opcode::MultimemLoadReduce | Opcode::MultimemReduce | Opcode::MultimemStore).then_some(100..=107)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::Builder;

    #[test]
    fn each_missing_feature_of_a_target_is_named_once() {
        let mut builder = Builder::new();
        builder.begin_entry("k", &[Type::ptr(DType::F8E4M3FN)]);
        builder.splat(DType::F4E2M1FN, 1, &[16]);
        builder.splat(DType::F4E2M1FN, 2, &[16]);
        let missing = |name: &str| match check(&builder.module, name.parse().expect("a target")) {
            Ok(()) => Vec::new(),
            Err(Error::Unsupported(list)) => list.into_iter().map(|d| d.message).collect(),
            Err(other) => panic!("{other}"),
        };
        let (f4, f8) = ("element type f4E2M1FN does not exist on", "element type f8E4M3FN does not exist on");
        let (late, ada) = ("sm_100 and later have it", "sm_89 and later have it");
        assert_eq!(missing("sm_80"), [format!("{f4} sm_80: {late}"), format!("{f8} sm_80: {ada}")]);
        assert_eq!(missing("sm_90"), [format!("{f4} sm_90: {late}")]);
        assert!(missing("sm_120").is_empty());
    }
}
