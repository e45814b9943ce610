//! Modules that the interpreter judges in place of the result of a pass.

use std::collections::{BTreeSet, HashMap};

use cutlet::dtype::DType;
use cutlet::ir::op_table::Effect;
use cutlet::ir::{Attr, BlockId, ConstData, Module, OpId, Opcode, Overflow, Sign, Substitution, Type, Value};

/// Returns a module whose memory accesses are in the opposite order, as far as values and memory
/// tokens permit it.
///
/// Each block is scheduled from its last op that depends on no op that is left. Ops with another
/// effect than an access with a token, and branches that leave a loop or the kernel, keep their
/// order with all others.
pub fn reversed(module: &Module) -> Module {
    let mut module = module.clone();
    let mut blocks = vec![module.entries[0].body];
    module.walk(module.entries[0].body, &mut |id| blocks.extend(&module.op(id).regions));
    for block in blocks {
        let order = reversed_block(&module, block);
        module.block_mut(block).ops = order;
    }
    module
}

fn reversed_block(module: &Module, block: BlockId) -> Vec<OpId> {
    let ops = &module.block(block).ops;
    let mut defined = HashMap::new();
    let mut needs: Vec<BTreeSet<usize>> = Vec::new();
    let mut barrier = None;
    for (at, &id) in ops.iter().enumerate() {
        let mut used = module.op(id).operands.clone();
        module.op(id).regions.iter().for_each(|&region| {
            module.walk(region, &mut |inner| used.extend(&module.op(inner).operands));
        });
        let mut of_op: BTreeSet<usize> = used.iter().filter_map(|value| defined.get(value).copied()).collect();
        of_op.extend(barrier);
        if is_barrier(module, id) {
            of_op.extend(0..at);
            barrier = Some(at);
        }
        needs.push(of_op);
        module.op(id).results.iter().for_each(|&result| _ = defined.insert(result, at));
    }
    let mut left: BTreeSet<usize> = (0..ops.len()).collect();
    let mut order = Vec::new();
    while !left.is_empty() {
        let is_ready = |at: &&usize| needs[**at].iter().all(|need| !left.contains(need));
        let next = *left.iter().rev().find(is_ready).expect("needs are above");
        left.remove(&next);
        order.push(ops[next]);
    }
    order
}

fn is_barrier(module: &Module, id: OpId) -> bool {
    let op = module.op(id);
    let has_token = op.results.iter().any(|&result| matches!(module.ty(result), Type::Token));
    let is_free = match op.code.spec().effect {
        Effect::Pure | Effect::Read => true,
        _ => has_token,
    };
    if op.regions.is_empty() {
        return !is_free;
    }
    let mut inside = false;
    for &region in &op.regions {
        for &inner in &module.block(region).ops {
            let leaves = match module.op(inner).code {
                Opcode::Return => true,
                Opcode::Break | Opcode::Continue => op.code == Opcode::If,
                code if code.spec().effect == Effect::Terminator => false,
                _ => is_barrier(module, inner),
            };
            inside |= leaves;
        }
    }
    inside
}

/// Replaces inline PTX of [`INSTRUCTIONS`] by ops of the IR with its meaning.
pub fn with_known_instructions(module: &Module) -> Module {
    let mut module = module.clone();
    let body = module.entries[0].body;
    let mut values = Substitution::new();
    let mut out = Vec::new();
    for id in module.block(body).ops.clone() {
        let op = module.op(id).clone();
        let text =
            op.attrs.iter().find_map(|attr| if let Attr::Text(text) = attr { Some(text.to_string()) } else { None });
        let mut writer = Writer { module: &mut module, out: &mut out, of: id };
        let result = match text.as_deref().filter(|_| op.code == Opcode::InlinePtx) {
            Some("sub.s32 $0, $1, $2;") => writer.op(Opcode::SubI, &op.operands[..2]),
            Some("brev.b32 $0, $1;") => writer.reversal(op.operands[0]),
            _ => {
                out.push(id);
                continue;
            }
        };
        values.replace(op.results[0], result);
    }
    module.block_mut(body).ops = out;
    values.apply(&mut module, body);
    module
}

/// Writes ops of the type of another op.
struct Writer<'a> {
    module: &'a mut Module,
    out: &'a mut Vec<OpId>,
    of: OpId,
}

impl Writer<'_> {
    fn op(&mut self, code: Opcode, operands: &[Value]) -> Value {
        let attrs = match code {
            Opcode::SubI | Opcode::ShlI => vec![Attr::Overflow(Overflow::None)],
            Opcode::ShrI => vec![Attr::Sign(Sign::Unsigned)],
            _ => vec![],
        };
        self.emit(code, operands, attrs)
    }

    fn emit(&mut self, code: Opcode, operands: &[Value], attrs: Vec<Attr>) -> Value {
        let (ty, loc) = (self.module.ty_id(self.module.op(self.of).results[0]), self.module.op(self.of).loc);
        let groups: Vec<&[Value]> = operands.iter().map(std::slice::from_ref).collect();
        let id = self.module.add_op(code, &groups, attrs, vec![], &[ty], loc);
        self.out.push(id);
        self.module.op(id).results[0]
    }

    /// Reverses the bits of words of 32 bits: halves of 1, 2, 4, 8 and 16 bits are exchanged.
    fn reversal(&mut self, word: Value) -> Value {
        assert_eq!(self.module.dtype(word), DType::I32);
        let steps = [(1, 0x5555_5555), (2, 0x3333_3333), (4, 0x0f0f_0f0f), (8, 0x00ff_00ff), (16, 0xffff)];
        steps.into_iter().fold(word, |word, (shift, mask)| {
            let [shift, mask] =
                [shift, mask].map(|bits| self.emit(Opcode::Constant, &[], vec![Attr::Value(ConstData::Splat(bits))]));
            let high = self.op(Opcode::ShrI, &[word, shift]);
            let high = self.op(Opcode::AndI, &[high, mask]);
            let low = self.op(Opcode::AndI, &[word, mask]);
            let low = self.op(Opcode::ShlI, &[low, shift]);
            self.op(Opcode::OrI, &[high, low])
        })
    }
}
