//! Legalization of tf32 loads: nonzero padding is loaded as f32 and converted.
//!
//! * Symptom (`tileiras` 13.5): it writes such padding as the 19 bits of the type into a 32-bit
//!   word, and does not write the upper byte. So -0.0, NaN and the infinities become other numbers.
//!   Constants of tf32 are correct. In memory, tf32 is f32 with 13 ignored low bits, and f32
//!   padding is correct.
//! * Symptom before sm_90: `tileiras` terminates for a loaded tf32 that is multiplied in a loop.
//!   There, all tf32 loads are replaced.

use super::rewrite::rewrite_blocks;
use crate::dtype::DType;
use crate::ir::{
    Attr, Def, Elem, Entry, Loc, Module, OpId, Opcode, Padding, Rounding, Substitution, Type, TypeId, Value,
};

/// Replaces each load of an entry that pads tf32 with a nonzero value.
pub(super) fn run(module: &mut Module, entry: &Entry) {
    read_as_f32(module, entry, &|padding| padding.is_some_and(|padding| padding != Padding::Zero));
}

/// Replaces each load of tf32 through a view.
pub(super) fn run_for_all(module: &mut Module, entry: &Entry) {
    read_as_f32(module, entry, &|_| true);
}

fn read_as_f32(module: &mut Module, entry: &Entry, wanted: &dyn Fn(Option<Padding>) -> bool) {
    let mut values = Substitution::new();
    rewrite_blocks(module, entry.body, &mut |module, id, out| {
        let view = match module.op(id).code {
            Opcode::LoadView => module.op(id).operand_group("view")[0],
            _ => return out.push(id),
        };
        if !padding_of_tf32(module, view).is_some_and(wanted) {
            return out.push(id);
        }
        let loc = module.op(id).loc;
        let Some(wide_view) = (Widen { module, out, loc }).value(view) else { return out.push(id) };
        let old = module.op(id).results[0];
        let tile = module.ty_id(old);
        let wide_tile = module.intern(Type::tile(DType::F32, module.shape(old).to_vec()));
        // The view is the first operand.
        module.op_mut(id).operands[0] = wide_view;
        let wide = module.renew_result_as(id, wide_tile);
        out.push(id);
        let rounding = vec![Attr::Rounding(Rounding::Zero)];
        let narrow = module.add_op(Opcode::FToF, &[&[wide]], rounding, vec![], &[tile], loc);
        out.push(narrow);
        let narrow = module.op(narrow).results[0];
        values.replace(old, narrow);
    });
    values.apply(module, entry.body);
}

/// Returns the padding of a tf32 view; `None` for views of other types.
fn padding_of_tf32(module: &Module, view: Value) -> Option<Option<Padding>> {
    let (padding, tensor) = match *module.ty(view) {
        Type::PartitionView { padding, view, .. }
        | Type::StridedView { padding, view, .. }
        | Type::GatherScatterView { padding, view, .. } => (padding, view),
        Type::Tile { .. } | Type::TensorView { .. } | Type::Token => return None,
    };
    let is_tf32 = matches!(module.type_of(tensor), Type::TensorView { elem: DType::TF32, .. });
    is_tf32.then_some(padding)
}

/// Builds the f32 versions of views, and of their base addresses, before an op.
struct Widen<'a> {
    module: &'a mut Module,
    out: &'a mut Vec<OpId>,
    loc: Loc,
}

impl Widen<'_> {
    /// Returns the f32 version of a value; `None` if a loop or branch produces the view.
    fn value(&mut self, value: Value) -> Option<Value> {
        let ty = self.wide_type(self.module.ty_id(value));
        let is_address = self.module.ty(value).as_tile().is_some();
        let id = match self.module.def(value) {
            Def::Result(maker, _) if !is_address || self.module.op(maker).code == Opcode::Assume => {
                let source = self.module.op(maker).operands[0];
                let mut copied = Substitution::new();
                copied.replace(source, self.value(source)?);
                let copy = self.module.clone_op(maker, &mut copied);
                self.module.renew_result_as(copy, ty);
                copy
            }
            _ if is_address => self.module.add_op(Opcode::PtrToPtr, &[&[value]], vec![], vec![], &[ty], self.loc),
            _ => return None,
        };
        self.out.push(id);
        Some(self.module.op(id).results[0])
    }

    fn wide_type(&mut self, ty: TypeId) -> TypeId {
        let mut wide = self.module.type_of(ty).clone();
        match &mut wide {
            Type::Tile { elem: Elem::Ptr { pointee, .. }, .. } => *pointee = DType::F32,
            Type::TensorView { elem, .. } => *elem = DType::F32,
            Type::PartitionView { view, .. }
            | Type::StridedView { view, .. }
            | Type::GatherScatterView { view, .. } => {
                *view = self.wide_type(*view);
            }
            Type::Tile { elem: Elem::Num(_), .. } | Type::Token => {}
        }
        self.module.intern(wide)
    }
}
