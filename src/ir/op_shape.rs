//! Structural check of an op against its row in the op table.

use super::attr::AttrKind;
use super::module::Op;
use super::op_table::{Arity, FlagBit, Results};

impl Op {
    /// Checks operand groups, results, attributes and regions against the row of the opcode.
    ///
    /// After this check, [`Op::group`] and [`Op::operand_group`] cannot panic, and each attribute
    /// that the first version of the op requires is present.
    ///
    /// # Errors
    /// A sentence about the first mismatch.
    pub fn matches_row(&self) -> Result<(), String> {
        self.check_operands()?;
        self.check_attrs()?;
        let spec = self.code.spec();
        let count = self.results.len();
        match spec.results {
            Results::Fixed(n) | Results::Counted(n) if count != usize::from(n) => {
                return Err(format!("has {count} results instead of {n}"));
            }
            _ => {}
        }
        if self.regions.len() != usize::from(spec.regions) {
            return Err(format!("has {} regions instead of {}", self.regions.len(), spec.regions));
        }
        Ok(())
    }

    fn check_operands(&self) -> Result<(), String> {
        let groups = self.code.spec().operands;
        if self.segments.is_empty() {
            let plain = groups.iter().all(|g| g.arity == Arity::One);
            if !plain && !groups.is_empty() {
                return Err("lacks the lengths of its operand groups".to_string());
            }
            if self.operands.len() != groups.len() {
                return Err(format!("has {} operands instead of {}", self.operands.len(), groups.len()));
            }
            return Ok(());
        }
        let total: u64 = self.segments.iter().map(|&s| u64::from(s)).sum();
        if self.segments.len() != groups.len() || total != self.operands.len() as u64 {
            return Err("has operand groups that do not add up".to_string());
        }
        for (group, &count) in groups.iter().zip(&self.segments) {
            let fits = match group.arity {
                Arity::One => count == 1,
                Arity::Optional => count <= 1,
                Arity::Many => true,
            };
            if !fits {
                return Err(format!("has {count} values for operand `{}`", group.name));
            }
        }
        Ok(())
    }

    fn check_attrs(&self) -> Result<(), String> {
        let spec = self.code.spec();
        for attr in &self.attrs {
            let kind = attr.kind();
            let is_flag = |bit: &FlagBit| matches!(bit, FlagBit::Attr(k) if *k == kind);
            let known = spec.attrs.iter().any(|a| a.kind == kind) || spec.flags.iter().any(is_flag);
            if !known {
                return Err(format!("has an attribute that the op does not know: {attr:?}"));
            }
            if self.attrs.iter().filter(|a| a.kind() == kind).count() > 1 {
                return Err(format!("has two attributes of one kind: {attr:?}"));
            }
        }
        // An attribute that a later version added has a default.
        let missing = spec.attrs.iter().find(|a| !a.optional && a.since <= spec.since && self.attr(a.kind).is_none());
        match missing {
            Some(attr) if !matches!(attr.kind, AttrKind::Flag(_)) => Err(format!("lacks attribute `{}`", attr.name)),
            _ => Ok(()),
        }
    }
}
