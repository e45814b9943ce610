//! Helpers of the rules: an op, its operands by name, and common requirements.

use crate::dtype::DType;
use crate::ir::print::TypeText;
use crate::ir::{Elem, Module, Op, Type, Value};

/// Result of a rule. The error is a sentence.
pub(super) type Rule = Result<(), String>;

/// Op that matches its row.
pub(super) struct OpRule<'m> {
    pub module: &'m Module,
    pub op: &'m Op,
}

pub(super) fn type_text(module: &Module, ty: &Type) -> String {
    TypeText(module, ty).to_string()
}

pub(super) fn text(module: &Module, value: Value) -> String {
    type_text(module, module.ty(value))
}

/// Returns `Err` with the sentence if the condition is false.
pub(super) fn demand(met: bool, sentence: impl FnOnce() -> String) -> Rule {
    if met { Ok(()) } else { Err(sentence()) }
}

impl<'m> OpRule<'m> {
    pub fn text(&self, value: Value) -> String {
        text(self.module, value)
    }

    pub fn ty(&self, value: Value) -> &'m Type {
        self.module.ty(value)
    }

    /// Returns the name of a value in the documentation of the op.
    pub fn name(&self, value: Value) -> String {
        if let Some(i) = self.op.results.iter().position(|&v| v == value) {
            let single = self.op.results.len() == 1;
            return if single { "the result".to_string() } else { format!("result {i}") };
        }
        let groups = self.op.code.spec().operands;
        let group = (0..groups.len()).find(|&g| self.op.group(g).contains(&value));
        match group {
            Some(g) if self.op.group(g).len() == 1 => groups[g].name.to_string(),
            Some(g) => {
                let i = self.op.group(g).iter().position(|&v| v == value).unwrap_or(0);
                format!("value {i} of {}", groups[g].name)
            }
            None => "a value".to_string(),
        }
    }

    /// Returns the only operand of a group.
    pub fn operand(&self, name: &str) -> Value {
        self.op.operand_group(name)[0]
    }

    pub fn optional(&self, name: &str) -> Option<Value> {
        self.op.operand_group(name).first().copied()
    }

    pub fn result(&self) -> Value {
        self.op.results[0]
    }

    /// Returns the message for a value of another kind than `what`.
    pub fn expected(&self, value: Value, what: &str) -> String {
        format!("{} is {}, but it must be {what}", self.name(value), self.text(value))
    }

    pub fn tile(&self, value: Value) -> Result<(Elem, &'m [i64]), String> {
        self.ty(value).as_tile().ok_or_else(|| self.expected(value, "a tile"))
    }

    /// Returns the type and shape of a tile of numbers, except i4.
    pub fn numbers(&self, value: Value) -> Result<(DType, &'m [i64]), String> {
        match self.ty(value).as_tile() {
            Some((Elem::Num(dtype), shape)) if dtype != DType::I4 => Ok((dtype, shape)),
            _ => Err(self.expected(value, "a tile of numbers")),
        }
    }

    /// Returns the type and shape of a tile of integers, except i4.
    pub fn ints(&self, value: Value) -> Result<(DType, &'m [i64]), String> {
        match self.numbers(value) {
            Ok((dtype, shape)) if dtype.is_int() => Ok((dtype, shape)),
            _ => Err(self.expected(value, "a tile of integers")),
        }
    }

    /// Returns the type and shape of a tile of f16, bf16, f32 or f64.
    pub fn floats(&self, value: Value) -> Result<(DType, &'m [i64]), String> {
        match self.numbers(value) {
            Ok((dtype, shape)) if dtype.is_base_float() => Ok((dtype, shape)),
            _ => Err(self.expected(value, "a tile of f16, bf16, f32 or f64")),
        }
    }

    /// Returns the pointee and shape of a tile of pointers.
    pub fn pointers(&self, value: Value) -> Result<(Elem, &'m [i64]), String> {
        match self.ty(value).as_tile() {
            Some((elem @ Elem::Ptr { .. }, shape)) => Ok((elem, shape)),
            _ => Err(self.expected(value, "a tile of pointers")),
        }
    }

    /// Returns the type of a scalar integer.
    pub fn int_scalar(&self, value: Value) -> Result<DType, String> {
        match self.ints(value) {
            Ok((dtype, [])) => Ok(dtype),
            _ => Err(self.expected(value, "an integer of rank 0")),
        }
    }

    /// Checks that all values have exactly this type.
    pub fn all_of(&self, values: &[Value], expected: &Type) -> Rule {
        values.iter().try_for_each(|&v| self.has_type(v, expected))
    }

    pub fn has_type(&self, value: Value, expected: &Type) -> Rule {
        demand(self.ty(value) == expected, || self.expected(value, &type_text(self.module, expected)))
    }

    /// Checks that all values have one type.
    pub fn one_type(&self, values: impl IntoIterator<Item = Value>) -> Rule {
        let mut values = values.into_iter();
        let Some(first) = values.next() else { return Ok(()) };
        values.try_for_each(|v| self.same(first, v))
    }

    pub fn same(&self, a: Value, b: Value) -> Rule {
        demand(self.module.ty_id(a) == self.module.ty_id(b), || {
            let (name_a, name_b) = (self.name(a), self.name(b));
            format!("{name_a} is {} and {name_b} is {}, but they must be of one type", self.text(a), self.text(b))
        })
    }

    /// Checks that two tiles have one shape.
    pub fn same_shape(&self, a: Value, b: Value) -> Rule {
        demand(self.tile(a)?.1 == self.tile(b)?.1, || {
            let (name_a, name_b) = (self.name(a), self.name(b));
            format!("{name_a} is {} and {name_b} is {}, but they must have one shape", self.text(a), self.text(b))
        })
    }

    /// Checks that two tiles have one element type.
    pub fn same_elem(&self, a: Value, b: Value) -> Rule {
        demand(self.tile(a)?.0 == self.tile(b)?.0, || {
            let (name_a, name_b) = (self.name(a), self.name(b));
            format!(
                "{name_a} is {} and {name_b} is {}, but they must have one element type",
                self.text(a),
                self.text(b)
            )
        })
    }

    /// Checks the optional token operand, and the token results from position `first_result` on.
    pub fn token_in_out(&self, first_result: usize) -> Rule {
        let has_group = self.op.code.spec().operands.iter().any(|g| g.name == "token");
        if has_group {
            self.all_of(self.op.operand_group("token"), &Type::Token)?;
        }
        self.all_of(&self.op.results[first_result.min(self.op.results.len())..], &Type::Token)
    }
}
