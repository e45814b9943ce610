//! Residues of integers modulo powers of two.

use super::table::IntRanges;
use crate::ir::{Module, Opcode, Value};

/// Maximum number of ops between a value and the source of its residue.
const DEPTH: u32 = 16;

impl IntRanges {
    /// Returns the remainder of the elements of an integer modulo `modulus`, a power of two of at
    /// most 2^31, if it is known. One less than a multiple of 16 has 15.
    ///
    /// ```
    /// use cutlet::ir::Module;
    /// use cutlet::pass::IntRanges;
    ///
    /// let text = "entry @k() {
    ///   %x, %y, %z = get_tile_block_id : tile<i32>
    ///   %c = constant <i32: 64> : tile<i32>
    ///   %start = muli %x, %c : tile<i32>
    ///   %one = constant <i32: 1> : tile<i32>
    ///   %before = subi %start, %one : tile<i32>
    ///   return
    /// }
    /// ";
    /// let module = Module::parse("k", text)?;
    /// let ranges = IntRanges::analyze(&module, &module.entries[0]);
    /// let ops = &module.block(module.entries[0].body).ops;
    /// let before = module.op(ops[4]).results[0];
    /// assert_eq!(ranges.residue(&module, before, 4), Some(3));
    /// assert_eq!(ranges.residue(&module, before, 128), None);
    /// # Ok::<(), cutlet::Diagnostic>(())
    /// ```
    pub fn residue(&self, module: &Module, value: Value, modulus: u64) -> Option<u64> {
        self.residue_to_depth(module, value, modulus, DEPTH)
    }

    /// Returns the residue, derived from at most `depth` ops. Sums wrap at a multiple of the
    /// modulus, and conversions keep the low bits.
    fn residue_to_depth(&self, module: &Module, value: Value, modulus: u64, depth: u32) -> Option<u64> {
        if self.divisor(value) >= modulus {
            return Some(0);
        }
        if let Some(constant) = self.constant(value) {
            return Some(constant.rem_euclid(modulus as i64) as u64);
        }
        let op = module.op(module.defining_op(value)?);
        let wraps_at_multiple = module.dtype(value).bits() >= modulus.ilog2();
        let depth = depth.checked_sub(1)?;
        let of = |at: usize| self.residue_to_depth(module, op.operands[at], modulus, depth);
        match op.code {
            _ if !wraps_at_multiple => None,
            Opcode::AddI => Some((of(0)? + of(1)?) % modulus),
            Opcode::SubI => Some((of(0)? + modulus - of(1)?) % modulus),
            code if code.has_operand_elements() || matches!(code, Opcode::ExtI | Opcode::TruncI) => of(0),
            _ => None,
        }
    }
}
