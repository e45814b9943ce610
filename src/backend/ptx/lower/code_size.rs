//! Code-size limit: rejects kernels before the assembler would take minutes.

use super::{Lowered, Lowering};
use crate::backend::ptx::hardware::{MAX_REGISTERS_PER_THREAD, WARP_SIZE};
use crate::ir::{Elem, Op, OpId, Opcode, Type, Value};

/// Default limit for the number of instructions and other lines of a kernel.
const CODE_LIMIT: usize = 1 << 19;

/// Registers per thread of one tile above which the assembler takes minutes. An explicit code limit
/// disables the check.
const REGISTER_LIMIT: u32 = 1 << 10;

impl Lowering<'_> {
    /// Rejects kernels longer than the code limit.
    pub fn check_code_size(&mut self, op: &Op) -> Lowered {
        let limit = self.info.options.code_limit.map_or(CODE_LIMIT, |limit| limit as usize);
        if self.b.num_lines() <= limit && !self.report.over_code_limit {
            return Ok(());
        }
        self.report.over_code_limit = true;
        let tiles = op.results.iter().chain(&op.operands).filter_map(|&value| self.module.ty(value).as_tile());
        let largest = tiles.max_by_key(|(_, shape)| shape.iter().product::<i64>());
        let of = largest.map_or(String::new(), |(elem, shape)| format!(" of {elem} {shape:?}"));
        let warps = self.info.inference.num_warps;
        Err(format!(
            "the code is longer than {limit} instructions here, at an operation{of} by {warps} warps: take smaller tiles, \
             or raise `Hints::code_limit` and wait for the assembler"
        ))
    }

    /// Rejects tiles with too many registers per thread. An explicit code limit disables the check.
    pub fn check_registers(&mut self, id: OpId) -> Lowered {
        let op = self.module.op(id);
        let virtual_op = op.code.is_alias()
            || matches!(op.code, Opcode::Constant | Opcode::Iota)
            || !op.regions.is_empty()
            || self.info.rematerialized.contains(&id);
        if virtual_op {
            return Ok(());
        }
        let words = |&value: &Value| (self.info.inference.words_of(value), value);
        let of_numbers = |value: &&Value| matches!(self.module.ty(**value), Type::Tile { elem: Elem::Num(_), .. });
        let tiles = op.results.iter().filter(of_numbers);
        let Some((words, value)) = tiles.map(words).max() else { return Ok(()) };
        self.report.remarks.tile(self.module, id, value, words);
        if words < REGISTER_LIMIT || self.info.options.code_limit.is_some() {
            return Ok(());
        }
        let (elem, shape) = self.module.ty(value).as_tile().expect("a tile");
        let threads = self.info.inference.num_warps as u32 * WARP_SIZE;
        self.report.over_code_limit = true;
        Err(format!(
            "a tile of {elem} {shape:?} is {words} registers of each of {threads} threads, which have \
             {MAX_REGISTERS_PER_THREAD} at most: take smaller tiles, or a `Hints::code_limit` and wait for the assembler"
        ))
    }
}
