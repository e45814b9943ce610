//! The verifier of modules.
//!
//! Checks the structure (blocks, terminators, scope of each use), the types, and the typing rule of
//! each op, as the Tile IR verifier does for bytecode. Accepts any module whose handles are in
//! range. Restrictions of targets and bytecode versions are not checked.
//!
//! All ops are checked, and a rule reports the first violation of an op. An op that does not match
//! its row, or has operands of malformed types, is not checked further.

mod assume;
mod control;
mod convert;
mod elementwise;
mod memory;
mod mma;
mod op;
mod rule;
mod scope;
mod shape;
mod simple;
mod types;
mod verifier;
mod view;

use super::module::{Entry, Global, Module};
use super::name::is_identifier;
use super::types::{Elem, Type};
use crate::dtype::DType;
use crate::error::Diagnostic;
use rule::Rule;
use verifier::Verifier;

/// Checks structure, scope and types of a module, and reports all errors.
///
/// # Errors
/// One diagnostic for each op (or block, entry, global) that violates a rule, with its location,
/// its name and the types involved.
///
/// ```
/// use cutlet::dtype::DType;
/// use cutlet::ir::{Builder, Opcode, verify};
///
/// let mut builder = Builder::new();
/// builder.begin_entry("k", &[]);
/// let small = builder.splat(DType::I32, 1, &[4]);
/// let large = builder.splat(DType::I32, 1, &[8]);
/// let ty = builder.module.ty_id(small);
/// builder.simple(Opcode::AndI, &[small, large], vec![], ty);
/// builder.op(Opcode::Return, &[&[]], vec![], vec![], &[]);
/// let errors = verify(&builder.module).unwrap_err();
/// assert_eq!(errors[0].message, "`andi`: lhs is tile<4xi32> and rhs is tile<8xi32>, but they must be of one type");
/// ```
pub fn verify(module: &Module) -> Result<(), Vec<Diagnostic>> {
    let mut verifier = Verifier { module, errors: Vec::new() };
    verifier.symbols();
    module.globals.iter().for_each(|global| verifier.global(global));
    module.entries.iter().for_each(|entry| verifier.entry(entry));
    if verifier.errors.is_empty() { Ok(()) } else { Err(verifier.errors) }
}

impl Verifier<'_> {
    fn symbols(&mut self) {
        let module = self.module;
        let globals = module.globals.iter().map(|g| (&g.name, None));
        let entries = module.entries.iter().map(|e| (&e.name, module.location(e.loc)));
        let mut seen = rustc_hash::FxHashSet::default();
        for (name, location) in globals.chain(entries) {
            if !is_identifier(name) {
                let message =
                    "names an entry or a global, but a name consists of letters, digits, `_`, `$`, `.` and `-`";
                self.report(format!("{name:?} {message}"), location);
            }
            if !seen.insert(name) {
                self.report(format!("the name `{name}` is used twice in one module"), location);
            }
        }
    }

    fn global(&mut self, global: &Global) {
        if let Err(message) = check_global(self.module, global) {
            self.report(format!("global `{}`: {message}", global.name), None);
        }
    }

    fn entry(&mut self, entry: &Entry) {
        let location = self.module.location(entry.loc);
        for (i, &param) in self.module.block(entry.body).args.iter().enumerate() {
            let valid = match self.module.ty(param) {
                Type::Tile { elem, shape } => shape.is_empty() && *elem != Elem::Num(DType::I4),
                _ => false,
            };
            if !valid {
                let ty = rule::text(self.module, param);
                let name = &entry.name;
                let message = format!("parameter {i} of `{name}` is {ty}, but a parameter is a number or a pointer");
                self.report(message, location);
            }
        }
        if let Err(message) = simple::check_hints(&entry.hints) {
            self.report(format!("entry `{}`: {message}", entry.name), location);
        }
        self.scopes(entry);
    }
}

fn check_global(module: &Module, global: &Global) -> Rule {
    let ty = module.type_of(global.ty);
    types::check(module, ty)?;
    match ty {
        Type::Tile { elem: Elem::Num(dtype), shape } if shape.len() == 1 && *dtype != DType::I4 => {
            if shape[0].count_ones() != 1 {
                return Err(format!("extent {} is not a power of two", shape[0]));
            }
            simple::check_data(&global.value, *dtype, shape)?;
        }
        _ => return Err(format!("{} is not a tile of numbers of rank 1", rule::type_text(module, ty))),
    }
    if global.alignment != 0 && !global.alignment.is_power_of_two() {
        return Err(format!("alignment {} is not a power of two", global.alignment));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
