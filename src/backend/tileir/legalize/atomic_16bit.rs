//! Legalization of atomics on 16-bit elements, which Tile IR lacks: compare-and-swap of the words
//! that contain them.
//!
//! A loop handles the elements of a tile together until each of them is done. If the other half of
//! a word changes in between, the word is tried again. The first try expects a word of zeros, and
//! reads the actual one.

use super::rewrite::rewrite_blocks;
use crate::dtype::DType;
use crate::ir::{
    AtomicMode, Attr, AttrKind, BlockId, CmpPred, ConstData, Elem, Entry, Literal, Loc, Module, Op, OpId, Opcode,
    Overflow, Sign, Substitution, Type, TypeId, Value,
};
use crate::util::collect::CollectVec as _;

/// Replaces the 16-bit atomics of an entry.
pub(super) fn run(module: &mut Module, entry: &Entry) {
    let mut values = Substitution::new();
    rewrite_blocks(module, entry.body, &mut |module, id, out| {
        let op = module.op(id);
        let is_atomic = matches!(op.code, Opcode::AtomicRmw | Opcode::AtomicCas);
        let is_half = is_atomic && module.dtype(op.operands[1]) == DType::I16;
        if !is_half {
            return out.push(id);
        }
        let op = op.clone();
        let shape = module.shape(op.operands[1]).to_vec();
        let old = Edit { module, out, loc: op.loc, shape }.by_words(&op);
        values.replace(op.results[0], old);
    });
    values.apply(module, entry.body);
}

/// Ops that are inserted at a place, on tiles of one shape.
struct Edit<'a> {
    module: &'a mut Module,
    out: &'a mut Vec<OpId>,
    loc: Loc,
    shape: Vec<i64>,
}

/// New value of a half.
enum Update {
    /// Extremum of the old value and the operand.
    Extremum { mode: AtomicMode, operand: Value },
    /// `new` if the old value is `expected`.
    Swap { expected: Value, new: Value },
}

/// Loop-invariant values of the tries.
struct Words {
    pointers: Value,
    /// Number of bits below the half in its word.
    shift: Value,
    /// Mask of the bits of the word outside of the half.
    others: Value,
    update: Update,
    attrs: Vec<Attr>,
}

fn wrap() -> Vec<Attr> {
    vec![Attr::Overflow(Overflow::None)]
}

fn unsigned() -> Vec<Attr> {
    vec![Attr::Sign(Sign::Unsigned)]
}

impl Edit<'_> {
    fn ty(&mut self, elem: Elem) -> TypeId {
        let shape = self.shape.clone();
        self.module.intern(Type::Tile { elem, shape })
    }

    fn numbers(&mut self, dtype: DType) -> TypeId {
        self.ty(Elem::Num(dtype))
    }

    fn op(
        &mut self,
        code: Opcode,
        groups: &[&[Value]],
        attrs: Vec<Attr>,
        regions: Vec<BlockId>,
        types: &[TypeId],
    ) -> OpId {
        let id = self.module.add_op(code, groups, attrs, regions, types, self.loc);
        self.out.push(id);
        id
    }

    fn put(&mut self, code: Opcode, operands: &[Value], attrs: Vec<Attr>, ty: TypeId) -> Value {
        let groups: Vec<&[Value]> = operands.iter().map(std::slice::from_ref).collect_vec();
        let id = self.op(code, &groups, attrs, vec![], &[ty]);
        self.module.op(id).results[0]
    }

    fn constant(&mut self, dtype: DType, bits: u64) -> Value {
        let ty = self.numbers(dtype);
        self.put(Opcode::Constant, &[], vec![Attr::Value(ConstData::Splat(bits))], ty)
    }

    /// Builds `a op b` in the type of both.
    fn both(&mut self, code: Opcode, a: Value, b: Value, attrs: Vec<Attr>) -> Value {
        let ty = self.module.ty_id(a);
        self.put(code, &[a, b], attrs, ty)
    }

    /// Builds the atomic on words, and returns the previous values.
    fn by_words(&mut self, op: &Op) -> Value {
        let words = self.words(op);
        let pending = match op.operand_group("mask") {
            &[mask, ..] => mask,
            [] => self.constant(DType::I1, 1),
        };
        let zeros = self.constant(DType::I32, 0);
        // An element outside of the mask of a swap returns its expected value.
        let none = match words.update {
            Update::Extremum { .. } => self.constant(DType::I16, 0),
            Update::Swap { expected, .. } => expected,
        };
        let types = [pending, zeros, none].map(|value| self.module.ty_id(value));
        let body = self.module.add_block(&types);
        let mut inner = Vec::new();
        let mut edit = Edit { module: self.module, out: &mut inner, loc: self.loc, shape: self.shape.clone() };
        edit.turn(&words, body);
        self.module.block_mut(body).ops = inner;
        let id = self.op(Opcode::Loop, &[&[pending, zeros, none]], vec![], vec![body], &types[2..]);
        self.module.op(id).results[0]
    }

    /// Computes the addresses of the words, and the positions of the halves in them.
    fn words(&mut self, op: &Op) -> Words {
        let kept = [AttrKind::MemOrder, AttrKind::MemScope];
        let attrs: Vec<Attr> = kept.iter().filter_map(|&kind| op.attr(kind).cloned()).collect_vec();
        let update = match op.attr(AttrKind::AtomicMode) {
            Some(Attr::AtomicMode(mode)) => Update::Extremum { mode: *mode, operand: op.operands[1] },
            _ => Update::Swap { expected: op.operands[1], new: op.operands[2] },
        };
        let (wide, word) = (self.numbers(DType::I64), self.numbers(DType::I32));
        let address = self.put(Opcode::PtrToInt, &[op.operands[0]], vec![], wide);
        let aligned = self.constant(DType::I64, !3);
        let aligned = self.both(Opcode::AndI, address, aligned, vec![]);
        let pointer = self.ty(Elem::Ptr { pointee: DType::I32, attr: None });
        let pointers = self.put(Opcode::IntToPtr, &[aligned], vec![], pointer);
        let low = self.put(Opcode::TruncI, &[address], wrap(), word);
        let (two, three) = (self.constant(DType::I32, 2), self.constant(DType::I32, 3));
        let byte = self.both(Opcode::AndI, low, two, vec![]);
        let shift = self.both(Opcode::ShlI, byte, three, wrap());
        let (half, all) = (self.constant(DType::I32, 0xffff), self.constant(DType::I32, 0xffff_ffff));
        let half = self.both(Opcode::ShlI, half, shift, wrap());
        let others = self.both(Opcode::XorI, half, all, vec![]);
        Words { pointers, shift, others, update, attrs }
    }

    /// Builds one try for all elements that are not done.
    fn turn(&mut self, words: &Words, body: BlockId) {
        let [pending, seen, old] = self.module.block(body).args[..] else { unreachable!("three carried values") };
        let [truth, word, half] = [pending, seen, old].map(|value| self.module.ty_id(value));
        let found = self.both(Opcode::ShrI, seen, words.shift, unsigned());
        let found = self.put(Opcode::TruncI, &[found], wrap(), half);
        let new = match words.update {
            Update::Extremum { mode, operand } => {
                let (code, sign) = match mode {
                    AtomicMode::Max => (Opcode::MaxI, Sign::Signed),
                    AtomicMode::Min => (Opcode::MinI, Sign::Signed),
                    AtomicMode::UMax => (Opcode::MaxI, Sign::Unsigned),
                    _ => (Opcode::MinI, Sign::Unsigned),
                };
                self.both(code, found, operand, vec![Attr::Sign(sign)])
            }
            Update::Swap { expected, new } => {
                let attrs = vec![Attr::CmpPred(CmpPred::Eq), Attr::Sign(Sign::Unsigned)];
                let is_expected = self.put(Opcode::CmpI, &[found, expected], attrs, truth);
                self.put(Opcode::Select, &[is_expected, new, found], vec![], half)
            }
        };
        let new = self.put(Opcode::ExtI, &[new], unsigned(), word);
        let new = self.both(Opcode::ShlI, new, words.shift, wrap());
        let kept = self.both(Opcode::AndI, seen, words.others, vec![]);
        let new = self.both(Opcode::OrI, kept, new, vec![]);
        let token = self.module.intern(Type::Token);
        let groups: [&[Value]; 5] = [&[words.pointers], &[seen], &[new], &[pending], &[]];
        let swap = self.op(Opcode::AtomicCas, &groups, words.attrs.clone(), vec![], &[word, token]);
        let got = self.module.op(swap).results[0];
        let attrs = |pred| vec![Attr::CmpPred(pred), Attr::Sign(Sign::Unsigned)];
        let same = self.put(Opcode::CmpI, &[got, seen], attrs(CmpPred::Eq), truth);
        let differs = self.put(Opcode::CmpI, &[got, seen], attrs(CmpPred::Ne), truth);
        let done = self.both(Opcode::AndI, pending, same, vec![]);
        let left = self.both(Opcode::AndI, pending, differs, vec![]);
        let old = self.put(Opcode::Select, &[done, found, old], vec![], half);
        let any = self.any(left);
        let leave = self.module.add_op(Opcode::Break, &[&[old]], vec![], vec![], &[], self.loc);
        let stay = self.module.add_op(Opcode::Yield, &[&[]], vec![], vec![], &[], self.loc);
        let [some, none] = [stay, leave].map(|end| {
            let block = self.module.add_block(&[]);
            self.module.block_mut(block).ops = vec![end];
            block
        });
        self.op(Opcode::If, &[&[any]], vec![], vec![some, none], &[]);
        self.op(Opcode::Continue, &[&[left, got, old]], vec![], vec![], &[]);
    }

    /// Returns the disjunction of all elements, as a scalar.
    fn any(&mut self, tile: Value) -> Value {
        let mut value = tile;
        let scalar = self.module.intern(Type::scalar(DType::I1));
        while let Some((_, shape)) = self.module.shape(value).to_vec().split_first() {
            let body = self.module.add_block(&[scalar, scalar]);
            let args = self.module.block(body).args.clone();
            let or = self.module.add_op(Opcode::OrI, &[&args[..1], &args[1..]], vec![], vec![], &[scalar], self.loc);
            let result = self.module.op(or).results[0];
            let end = self.module.add_op(Opcode::Yield, &[&[result]], vec![], vec![], &[], self.loc);
            self.module.block_mut(body).ops = vec![or, end];
            let attrs = vec![Attr::Dim(0), Attr::Identities(vec![Literal { dtype: DType::I1, bits: 0 }])];
            let ty = self.module.intern(Type::tile(DType::I1, shape));
            let id = self.op(Opcode::Reduce, &[&[value]], attrs, vec![body], &[ty]);
            value = self.module.op(id).results[0];
        }
        value
    }
}
