//! Tests of the verifier: each rule has a case that violates it and one that does not.

mod ops;
mod structure;
mod views;

use crate::dtype::DType;
use crate::ir::*;

use DType::*;

/// One op with parameters of any type.
struct Case {
    builder: Builder,
}

impl Case {
    fn new() -> Case {
        Case { builder: Builder::new() }
    }

    fn tensor(&mut self, elem: DType, shape: &[Option<i64>], strides: &[Option<i64>]) -> TypeId {
        self.tensor_at(elem, shape, strides, None)
    }

    fn tensor_at(
        &mut self,
        elem: DType,
        shape: &[Option<i64>],
        strides: &[Option<i64>],
        ptr_attr: Option<PtrAttr>,
    ) -> TypeId {
        let ty = Type::TensorView { elem, shape: shape.to_vec(), strides: strides.to_vec(), ptr_attr };
        self.builder.module.intern(ty)
    }

    /// Returns all errors of the op, one per line, empty if it is well-formed.
    fn run(mut self, params: &[Type], code: Opcode, groups: &[&[usize]], attrs: Vec<Attr>, results: &[Type]) -> String {
        let b = &mut self.builder;
        let args = b.begin_entry("k", params);
        let groups: Vec<Vec<Value>> = groups.iter().map(|g| g.iter().map(|&i| args[i]).collect()).collect();
        let groups: Vec<&[Value]> = groups.iter().map(Vec::as_slice).collect();
        let results: Vec<TypeId> = results.iter().map(|t| b.module.intern(t.clone())).collect();
        b.op(code, &groups, attrs, vec![], &results);
        b.op(Opcode::Return, &[&[]], vec![], vec![], &[]);
        messages(&b.module)
    }
}

/// Returns the errors, except those about parameters, which may have any type in the tests.
fn messages(module: &Module) -> String {
    let errors = verify(module).err().unwrap_or_default();
    let all = errors.into_iter().map(|e| e.message).filter(|m| !m.starts_with("parameter "));
    all.collect::<Vec<_>>().join("\n")
}

fn run(params: &[Type], code: Opcode, groups: &[&[usize]], attrs: Vec<Attr>, results: &[Type]) -> String {
    Case::new().run(params, code, groups, attrs, results)
}

fn t(dtype: DType, shape: &[i64]) -> Type {
    Type::tile(dtype, shape)
}

fn ptrs(pointee: DType, attr: Option<PtrAttr>, shape: &[i64]) -> Type {
    Type::Tile { elem: Elem::Ptr { pointee, attr }, shape: shape.to_vec() }
}

/// Asserts that the op is rejected with a message that contains `part`.
#[track_caller]
fn refused(complaint: &str, part: &str) {
    assert!(complaint.contains(part), "expected {part:?} in {complaint:?}");
}

#[track_caller]
fn fine(complaint: &str) {
    assert_eq!(complaint, "");
}
