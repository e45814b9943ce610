//! Bytecode version that a module needs.

use super::attribute::late_default;
use super::types::{number_row, ptr_attr_since};
use crate::backend::tileir::version::Version;
use crate::error::{Diagnostic, Error, Result};
use crate::ir::op_table::{AttrSpec, FlagBit};
use crate::ir::{Attr, AttrKind, Elem, Loc, Module, Op, OpId, Opcode, PtrAttr, Rounding, Type, TypeId};
use crate::util::collect::CollectVec as _;

/// A feature of a module that older versions lack.
struct Requirement {
    /// First version with the feature; `None` for a feature of this crate that no version has.
    version: Option<Version>,
    what: String,
    loc: Loc,
}

/// Returns the lowest version that can represent a module.
pub fn required_version(module: &Module) -> Version {
    requirements(module).iter().filter_map(|need| need.version).max().unwrap_or(Version::V13_1)
}

/// Checks that `version` can represent the module.
///
/// # Errors
/// [`Error::Unsupported`] with all features that need a later version, at their places in the
/// user's source.
pub(crate) fn check(module: &Module, version: Version) -> Result<()> {
    let missing: Vec<Diagnostic> = requirements(module)
        .into_iter()
        .filter(|need| need.version.is_none_or(|needed| needed > version))
        .map(|Requirement { version: needed, what, loc }| {
            let message = match needed {
                Some(needed) => format!("{what} needs Tile IR bytecode {needed} or later, but {version} was asked for"),
                None => format!("{what} is in no version of Tile IR bytecode"),
            };
            Diagnostic::new(message, module.location(loc).cloned())
        })
        .collect_vec();
    if missing.is_empty() { Ok(()) } else { Err(Error::Unsupported(missing)) }
}

fn requirements(module: &Module) -> Vec<Requirement> {
    let mut needs =
        Requirements { module, all: Vec::new(), seen: vec![false; module.types().count()], used: used_values(module) };
    for global in &module.globals {
        needs.of_type(global.ty, Loc::UNKNOWN);
        if global.private || global.constant {
            needs.add(3, format!("visibility or constancy of global `{}`", global.name), Loc::UNKNOWN);
        }
    }
    for entry in &module.entries {
        needs.of_block(entry.body, entry.loc);
        module.walk(entry.body, &mut |id| needs.of_op(id));
    }
    needs.all
}

struct Requirements<'m> {
    module: &'m Module,
    all: Vec<Requirement>,
    seen: Vec<bool>,
    used: Vec<bool>,
}

fn used_values(module: &Module) -> Vec<bool> {
    let mut used = vec![false; module.num_values()];
    for entry in &module.entries {
        module.walk(entry.body, &mut |id| module.op(id).operands.iter().for_each(|v| used[v.index()] = true));
    }
    used
}

impl Requirements<'_> {
    fn add(&mut self, minor: u8, what: String, loc: Loc) {
        let version = Version::from_minor(minor);
        if version != Some(Version::V13_1) {
            self.all.push(Requirement { version, what, loc });
        }
    }

    fn of_block(&mut self, block: crate::ir::BlockId, loc: Loc) {
        for &arg in &self.module.block(block).args {
            self.of_type(self.module.ty_id(arg), loc);
        }
    }

    fn of_op(&mut self, id: OpId) {
        let op = self.module.op(id);
        let spec = op.code.spec();
        self.add(spec.since, format!("`{}`", spec.name), op.loc);
        for bit in spec.flags.iter().filter(|_| spec.flags_since > spec.since) {
            if is_set(op, bit) {
                self.add(spec.flags_since, format!("`{}` of `{}`", bit_name(bit), spec.name), op.loc);
            }
        }
        for attr in spec.attrs {
            self.of_attr(op, attr);
        }
        // A print has no results in 13.1.
        if op.code == Opcode::Print && op.results.iter().any(|v| self.used[v.index()]) {
            self.add(2, format!("the token of `{}`", spec.name), op.loc);
        }
        for &result in &op.results {
            self.of_type(self.module.ty_id(result), op.loc);
        }
        for &region in &op.regions {
            self.of_block(region, op.loc);
        }
    }

    fn of_attr(&mut self, op: &Op, spec: &AttrSpec) {
        let Some(value) = op.attr(spec.kind) else { return };
        // Attributes of this crate are not written.
        if spec.since == u8::MAX {
            return;
        }
        let name = op.code.spec().name;
        if spec.since > op.code.spec().since && *value != late_default(spec.kind, op) {
            self.add(spec.since, format!("`{}` of `{name}`", spec.name), op.loc);
        }
        if *value == Attr::Rounding(Rounding::NearestAway) {
            self.add(4, format!("rounding nearest_away of `{name}`"), op.loc);
        }
        if let Attr::Identities(all) = value {
            all.iter().for_each(|literal| self.of_number(literal.dtype, op.loc));
        }
    }

    fn of_number(&mut self, dtype: crate::dtype::DType, loc: Loc) {
        self.add(number_row(dtype).since, format!("type {dtype}"), loc);
    }

    fn of_ptr_attr(&mut self, attr: Option<PtrAttr>, loc: Loc) {
        if let Some(attr) = attr {
            self.add(ptr_attr_since(attr), format!("pointer attribute `{}`", attr.name()), loc);
        }
    }

    fn of_type(&mut self, id: TypeId, loc: Loc) {
        if std::mem::replace(&mut self.seen[id.0 as usize], true) {
            return;
        }
        match self.module.type_of(id) {
            Type::Tile { elem: Elem::Num(dtype), .. } => self.of_number(*dtype, loc),
            Type::Tile { elem: Elem::Ptr { pointee, attr }, .. } => {
                self.of_number(*pointee, loc);
                self.of_ptr_attr(*attr, loc);
            }
            Type::TensorView { elem, ptr_attr, .. } => {
                self.of_number(*elem, loc);
                self.of_ptr_attr(*ptr_attr, loc);
            }
            Type::PartitionView { view, .. } => self.of_type(*view, loc),
            Type::StridedView { view, .. } | Type::GatherScatterView { view, .. } => {
                self.add(3, "a strided or gather/scatter view".into(), loc);
                self.of_type(*view, loc);
            }
            Type::Token => {}
        }
    }
}

pub(super) fn is_set(op: &Op, bit: &FlagBit) -> bool {
    match bit {
        FlagBit::Attr(kind) => op.attr(*kind).is_some(),
        FlagBit::Operand(name) => !op.operand_group(name).is_empty(),
    }
}

fn bit_name(bit: &FlagBit) -> String {
    match bit {
        FlagBit::Attr(AttrKind::Flag(flag)) => flag.name().to_string(),
        FlagBit::Attr(kind) => format!("{kind:?}"),
        FlagBit::Operand(name) => (*name).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::tileir::{WriteOptions, write};
    use crate::dtype::DType;
    use crate::ir::{Builder, Distribution};

    #[test]
    fn own_ops_are_in_no_version() {
        let mut b = Builder::new();
        b.begin_entry("k", &[]);
        let tile = b.splat(DType::F32, 0, &[32]);
        let layout = Distribution { slots: [].into(), threads: [1, 2, 4, 8, 16].into() };
        let ty = b.module.ty_id(tile);
        b.simple(Opcode::WithLayout, &[tile], vec![Attr::Distribution(layout)], ty);
        b.op(Opcode::Return, &[&[]], vec![], vec![], &[]);
        assert_eq!(required_version(&b.module), Version::V13_1);
        let error = write(&b.module, &WriteOptions::default()).unwrap_err().to_string();
        assert!(error.contains("`with_layout` is in no version of Tile IR bytecode"), "{error}");
    }
}
