//! Random kernels over integer and float tiles with loops, branches, loads and stores.

use crate::backend::cpu::{Memory, Program, RunOptions};
use crate::dtype::DType::{self, F32, I1, I32};
use crate::ir::*;

/// Elements of each array, and of a tile.
const ARRAY: usize = 64;
const TILE: i64 = 8;

/// Returns the bits of the integer array and of the float array after a run. All NaNs are equal.
pub(crate) fn run(module: &Module) -> (Vec<u32>, Vec<u32>) {
    let mut input: Vec<i32> = (0..ARRAY as i32).map(|i| i.wrapping_mul(i).wrapping_sub(40 * i) - 3).collect();
    let mut ints = vec![7i32; ARRAY];
    let mut floats = vec![0.5f32; ARRAY];
    let mut memory = Memory::new();
    let addresses = [input.as_mut_ptr() as *mut u8, ints.as_mut_ptr() as *mut u8, floats.as_mut_ptr() as *mut u8];
    for address in addresses {
        // SAFETY: the vectors outlive the run and are not accessed elsewhere during it.
        unsafe { memory.add(address, ARRAY * 4, true) };
    }
    let program = Program::compile(module).expect("a kernel that the cpu runs");
    let mut params: Vec<u64> = addresses.iter().map(|&a| a as u64).collect();
    params.extend([5, 100, 0xFFFF_FFF0]);
    let options = RunOptions { sequential: true, ..RunOptions::default() };
    program.run([3, 1, 1], &params, &memory, &options).expect("a run without faults");
    let bits = |v: &f32| if v.is_nan() { f32::NAN.to_bits() } else { v.to_bits() };
    (ints.iter().map(|&v| v as u32).collect(), floats.iter().map(bits).collect())
}

/// Kind of a value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Bool,
    Int,
    Ints,
    Floats,
}

const KINDS: [Kind; 4] = [Kind::Bool, Kind::Int, Kind::Ints, Kind::Floats];

struct Gen {
    b: Builder,
    state: u64,
    /// Values in scope, by kind.
    pools: [Vec<Value>; 4],
    types: [TypeId; 4],
    views: [Value; 3],
    depth: usize,
}

/// Makes a well-formed kernel as a function of the seed.
pub(crate) fn kernel(seed: u64) -> Module {
    let mut b = Builder::new();
    let params =
        [Type::ptr(I32), Type::ptr(I32), Type::ptr(F32), Type::scalar(I32), Type::scalar(I32), Type::scalar(I32)];
    let args = b.begin_entry("random", &params);
    let kinds = [Type::scalar(I1), Type::scalar(I32), Type::tile(I32, [TILE]), Type::tile(F32, [TILE])];
    let types = kinds.map(|ty| b.module.intern(ty));
    let views = [view(&mut b, args[0], I32), view(&mut b, args[1], I32), view(&mut b, args[2], F32)];
    let pools = [vec![], args[3..].to_vec(), vec![], vec![]];
    let mut g = Gen { b, state: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) + 1, pools, types, views, depth: 0 };
    let ids = g.b.op(Opcode::GetTileBlockId, &[], vec![], vec![], &[g.types[1]; 3]);
    let bid = g.b.module.op(ids).results[0];
    g.push(Kind::Int, bid);
    g.ops(18);
    g.store_some();
    g.b.op(Opcode::Return, &[&[]], vec![], vec![], &[]);
    g.b.module
}

fn view(b: &mut Builder, base: Value, elem: DType) -> Value {
    let ty = Type::TensorView { elem, shape: vec![Some(ARRAY as i64)], strides: vec![Some(1)], ptr_attr: None };
    let ty = b.module.intern(ty);
    let id = b.op(Opcode::MakeTensorView, &[&[base], &[], &[]], vec![], vec![], &[ty]);
    let array = b.module.op(id).results[0];
    let padding = Some(Padding::Zero);
    let ty = Type::PartitionView { tile: vec![TILE as i32], view: ty, dim_map: vec![0], padding };
    let ty = b.module.intern(ty);
    b.simple(Opcode::MakePartitionView, &[array], vec![], ty)
}

impl Gen {
    fn below(&mut self, bound: u64) -> u64 {
        self.state = self.state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.state >> 33) % bound
    }

    fn ty(&self, kind: Kind) -> TypeId {
        self.types[kind as usize]
    }

    fn push(&mut self, kind: Kind, value: Value) {
        self.pools[kind as usize].push(value);
    }

    /// Returns a value of this kind: one in scope, often a recent one, or a constant.
    fn pick(&mut self, kind: Kind) -> Value {
        let count = self.pools[kind as usize].len() as u64;
        if count == 0 || self.below(5) == 0 {
            let value = self.constant(kind);
            self.push(kind, value);
            return value;
        }
        let back = self.below(count).min(self.below(count));
        self.pools[kind as usize][(count - 1 - back) as usize]
    }

    fn constant(&mut self, kind: Kind) -> Value {
        const INTS: [u32; 10] = [0, 1, 2, 3, 8, 31, 33, u32::MAX, 0x7FFF_FFFF, 0x8000_0000];
        const FLOATS: [f32; 9] = [0.0, -0.0, 1.0, -1.0, 0.1, 3e38, 1e-42, f32::INFINITY, f32::NAN];
        match kind {
            Kind::Bool => {
                let bit = self.below(2);
                self.b.splat(I1, bit, &[])
            }
            Kind::Int => {
                let bits = INTS[self.below(10) as usize];
                self.b.splat(I32, bits.into(), &[])
            }
            Kind::Ints => {
                let bits = INTS[self.below(10) as usize];
                self.b.splat(I32, bits.into(), &[TILE])
            }
            Kind::Floats => {
                let bits = FLOATS[self.below(9) as usize].to_bits();
                self.b.splat(F32, bits.into(), &[TILE])
            }
        }
    }

    fn simple(&mut self, code: Opcode, operands: &[Value], attrs: Vec<Attr>, kind: Kind) {
        let ty = self.ty(kind);
        let value = self.b.simple(code, operands, attrs, ty);
        self.push(kind, value);
    }

    fn tile_op(&mut self, code: Opcode, source: Value, dtype: DType, shape: &[i64], attrs: Vec<Attr>) -> Value {
        let ty = self.b.module.intern(Type::tile(dtype, shape));
        self.b.simple(code, &[source], attrs, ty)
    }

    fn ops(&mut self, count: u64) {
        for _ in 0..count {
            match self.below(26) {
                0..=6 => self.integer(),
                7..=9 => self.float(),
                10 | 11 => self.compare(),
                12 | 13 => self.reshape(),
                14 => self.reduce(),
                15..=17 => self.load(),
                18 | 19 => {
                    let kind = KINDS[1 + self.below(3) as usize];
                    self.store(kind);
                }
                _ if self.depth >= 3 => self.integer(),
                20 | 21 => self.branch(),
                22 | 23 => self.for_loop(),
                _ => self.endless_loop(),
            }
        }
    }

    fn integer(&mut self) {
        use Opcode::*;
        let kind = if self.below(2) == 0 { Kind::Int } else { Kind::Ints };
        let (x, y) = (self.pick(kind), self.pick(kind));
        let none = Attr::Overflow(Overflow::None);
        let sign = Attr::Sign(if self.below(2) == 0 { Sign::Signed } else { Sign::Unsigned });
        let code =
            [AddI, SubI, MulI, AndI, OrI, XorI, ShlI, ShrI, MaxI, MinI, DivI, RemI, MulHiI][self.below(13) as usize];
        let attrs = match code {
            AddI | SubI | MulI | ShlI => vec![none],
            ShrI | MaxI | MinI | RemI => vec![sign],
            DivI if sign == Attr::Sign(Sign::Signed) && self.below(2) == 0 => {
                vec![sign, Attr::Rounding(Rounding::NegInf)]
            }
            DivI => vec![sign, Attr::Rounding(Rounding::Zero)],
            _ => vec![],
        };
        self.simple(code, &[x, y], attrs, kind);
    }

    fn float(&mut self) {
        use Opcode::*;
        let (x, y) = (self.pick(Kind::Floats), self.pick(Kind::Floats));
        let near = vec![Attr::Rounding(Rounding::NearestEven)];
        match self.below(10) {
            0 => self.simple(NegF, &[x], vec![], Kind::Floats),
            1 => self.simple(AbsF, &[x], vec![], Kind::Floats),
            2 => self.simple(Floor, &[x], vec![], Kind::Floats),
            3 => self.simple(MaxF, &[x, y], vec![], Kind::Floats),
            4 => {
                let source = self.pick(Kind::Ints);
                let attrs = vec![Attr::Sign(Sign::Signed), Attr::Rounding(Rounding::NearestEven)];
                self.simple(IToF, &[source], attrs, Kind::Floats);
            }
            5 => {
                let attrs = vec![Attr::Sign(Sign::Signed), Attr::Rounding(Rounding::IntToZero)];
                self.simple(FToI, &[x], attrs, Kind::Ints);
            }
            n => {
                let code = [AddF, SubF, MulF, DivF][(n - 6) as usize];
                let mode = if self.below(6) == 0 { Rounding::NegInf } else { Rounding::NearestEven };
                let attrs = if mode == Rounding::NearestEven { near } else { vec![Attr::Rounding(mode)] };
                self.simple(code, &[x, y], attrs, Kind::Floats);
            }
        }
    }

    fn compare(&mut self) {
        let pred = CmpPred::ALL[self.below(6) as usize];
        let sign = if self.below(2) == 0 { Sign::Signed } else { Sign::Unsigned };
        if self.below(2) == 0 {
            let (x, y) = (self.pick(Kind::Int), self.pick(Kind::Int));
            self.simple(Opcode::CmpI, &[x, y], vec![Attr::CmpPred(pred), Attr::Sign(sign)], Kind::Bool);
            let (cond, x, y) = (self.pick(Kind::Bool), self.pick(Kind::Int), self.pick(Kind::Int));
            self.simple(Opcode::Select, &[cond, x, y], vec![], Kind::Int);
        } else {
            let (x, y) = (self.pick(Kind::Floats), self.pick(Kind::Floats));
            let mask = self.b.module.intern(Type::tile(I1, [TILE]));
            let attrs = vec![Attr::CmpPred(pred), Attr::CmpOrder(CmpOrder::Unordered)];
            let cond = self.b.simple(Opcode::CmpF, &[x, y], attrs, mask);
            let (x, y) = (self.pick(Kind::Ints), self.pick(Kind::Ints));
            self.simple(Opcode::Select, &[cond, x, y], vec![], Kind::Ints);
        }
    }

    fn reshape(&mut self) {
        match self.below(4) {
            0 => {
                let source = self.pick(Kind::Int);
                let one = self.tile_op(Opcode::Reshape, source, I32, &[1], vec![]);
                self.simple(Opcode::Broadcast, &[one], vec![], Kind::Ints);
            }
            1 => self.simple(Opcode::Iota, &[], vec![], Kind::Ints),
            2 => {
                let source = self.pick(Kind::Ints);
                let cube = self.tile_op(Opcode::Reshape, source, I32, &[2, 2, 2], vec![]);
                let orders = [[0, 1, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
                let (p, q) = (orders[self.below(4) as usize], orders[self.below(4) as usize]);
                let turned = self.tile_op(Opcode::Permute, cube, I32, &[2, 2, 2], vec![Attr::Permutation(p.into())]);
                let turned = self.tile_op(Opcode::Permute, turned, I32, &[2, 2, 2], vec![Attr::Permutation(q.into())]);
                let flat = self.tile_op(Opcode::Reshape, turned, I32, &[4, 2], vec![]);
                self.simple(Opcode::Reshape, &[flat], vec![], Kind::Ints);
            }
            _ => {
                let (source, place) = (self.pick(Kind::Ints), self.pick(Kind::Int));
                let seven = self.b.splat(I32, 7, &[]);
                let place = self.b.simple(Opcode::AndI, &[place, seven], vec![], self.ty(Kind::Int));
                let bounds = Attr::Predicate(Predicate::Bounded { lower: Some(0), upper: Some(7) });
                let place = self.b.simple(Opcode::Assume, &[place], vec![bounds], self.ty(Kind::Int));
                let one = self.b.module.intern(Type::tile(I32, [1]));
                let id = self.b.op(Opcode::Extract, &[&[source], &[place]], vec![], vec![], &[one]);
                let part = self.b.module.op(id).results[0];
                self.simple(Opcode::Reshape, &[part], vec![], Kind::Int);
            }
        }
    }

    fn reduce(&mut self) {
        let source = self.pick(Kind::Ints);
        let int = self.ty(Kind::Int);
        let body = self.b.begin_block(&[int, int]);
        let args = self.b.module.block(body).args.clone();
        let sum = self.b.simple(Opcode::AddI, &args, vec![Attr::Overflow(Overflow::None)], int);
        self.b.op(Opcode::Yield, &[&[sum]], vec![], vec![], &[]);
        self.b.end_block();
        let attrs = vec![Attr::Dim(0), Attr::Identities(vec![Literal { dtype: I32, bits: 0 }])];
        let id = self.b.op(Opcode::Reduce, &[&[source]], attrs, vec![body], &[int]);
        let result = self.b.module.op(id).results[0];
        self.push(Kind::Int, result);
    }

    /// Stores half of the values in scope, the latest first, so that they are not dead.
    fn store_some(&mut self) {
        for kind in [Kind::Ints, Kind::Floats, Kind::Int] {
            let values: Vec<Value> = self.pools[kind as usize].iter().rev().take(8).copied().collect();
            for (place, value) in values.into_iter().enumerate() {
                if self.below(2) == 0 {
                    let place = self.b.splat(I32, place as u64, &[]);
                    self.store_at(kind, value, place);
                }
            }
        }
    }

    /// Returns one of a few indices or any small number, most often inside of the arrays.
    fn place(&mut self) -> Value {
        if self.below(3) > 0 {
            let place = self.below(2);
            return self.b.splat(I32, place, &[]);
        }
        let value = self.pick(Kind::Int);
        let nine = self.b.splat(I32, 9, &[]);
        self.b.simple(Opcode::AndI, &[value, nine], vec![], self.ty(Kind::Int))
    }

    fn load(&mut self) {
        // Most often from the arrays that the kernel stores to.
        let (which, place) = ([0, 1, 1, 2, 2][self.below(5) as usize], self.place());
        let kind = if which == 2 { Kind::Floats } else { Kind::Ints };
        let results = [self.ty(kind), self.b.module.intern(Type::Token)];
        let order = vec![Attr::MemOrder(MemOrder::Weak)];
        let id = self.b.op(Opcode::LoadView, &[&[self.views[which]], &[place], &[]], order, vec![], &results);
        let tile = self.b.module.op(id).results[0];
        self.push(kind, tile);
    }

    fn store(&mut self, kind: Kind) {
        let (tile, place) = (self.pick(kind), self.place());
        self.store_at(kind, tile, place);
    }

    fn store_at(&mut self, kind: Kind, mut tile: Value, place: Value) {
        if kind == Kind::Int {
            let one = self.tile_op(Opcode::Reshape, tile, I32, &[1], vec![]);
            tile = self.tile_op(Opcode::Broadcast, one, I32, &[TILE], vec![]);
        }
        let view = self.views[if kind == Kind::Floats { 2 } else { 1 }];
        let token = self.b.module.intern(Type::Token);
        let order = vec![Attr::MemOrder(MemOrder::Weak)];
        self.b.op(Opcode::StoreView, &[&[tile], &[view], &[place], &[]], order, vec![], &[token]);
    }

    /// Makes a block of random ops, whose terminator `finish` makes. Its values are out of scope
    /// afterwards.
    fn nested(&mut self, args: &[Kind], finish: impl FnOnce(&mut Gen, &[Value])) -> BlockId {
        let marks = self.pools.each_ref().map(Vec::len);
        let types: Vec<TypeId> = args.iter().map(|&k| self.ty(k)).collect();
        let block = self.b.begin_block(&types);
        let values = self.b.module.block(block).args.clone();
        args.iter().zip(&values).for_each(|(&kind, &value)| self.push(kind, value));
        self.depth += 1;
        let count = 1 + self.below(5);
        self.ops(count);
        finish(self, &values);
        self.depth -= 1;
        self.pools.iter_mut().zip(marks).for_each(|(pool, mark)| pool.truncate(mark));
        self.b.end_block()
    }

    /// Returns kinds of values to carry.
    fn some_kinds(&mut self) -> Vec<Kind> {
        let count = self.below(4);
        (0..count).map(|_| KINDS[self.below(4) as usize]).collect()
    }

    fn picks(&mut self, kinds: &[Kind]) -> Vec<Value> {
        kinds.iter().map(|&kind| self.pick(kind)).collect()
    }

    fn end(&mut self, code: Opcode, kinds: &[Kind]) {
        let values = self.picks(kinds);
        self.b.op(code, &[&values], vec![], vec![], &[]);
    }

    fn results(&mut self, op: OpId, kinds: &[Kind]) {
        let results = self.b.module.op(op).results.clone();
        kinds.iter().zip(results).for_each(|(&kind, value)| self.push(kind, value));
    }

    fn branch(&mut self) {
        let (cond, kinds) = (self.pick(Kind::Bool), self.some_kinds());
        let regions = (0..2).map(|_| self.nested(&[], |g, _| g.end(Opcode::Yield, &kinds))).collect();
        let types: Vec<TypeId> = kinds.iter().map(|&k| self.ty(k)).collect();
        let id = self.b.op(Opcode::If, &[&[cond]], vec![], regions, &types);
        self.results(id, &kinds);
    }

    fn for_loop(&mut self) {
        let kinds = self.some_kinds();
        let init = self.picks(&kinds);
        let lower = self.below(3);
        let (lower, step) = (self.b.splat(I32, lower, &[]), self.below(2) + 1);
        let step = self.b.splat(I32, step, &[]);
        let upper = if self.below(2) == 0 {
            let bits = self.below(4);
            self.b.splat(I32, bits, &[])
        } else {
            let (value, three) = (self.pick(Kind::Int), self.b.splat(I32, 3, &[]));
            self.b.simple(Opcode::AndI, &[value, three], vec![], self.ty(Kind::Int))
        };
        let args: Vec<Kind> = [Kind::Int].into_iter().chain(kinds.iter().copied()).collect();
        let early = self.below(3) == 0;
        let body = self.nested(&args, |g, args| {
            if early {
                let cond = g.pick(Kind::Bool);
                let then = g.nested(&[], |g, _| g.end(Opcode::Continue, &kinds));
                let otherwise = g.nested(&[], |g, _| g.end(Opcode::Yield, &[]));
                g.b.op(Opcode::If, &[&[cond]], vec![], vec![then, otherwise], &[]);
            }
            let mut next = g.picks(&kinds);
            // Some values are carried unchanged.
            for (i, slot) in next.iter_mut().enumerate() {
                if g.below(4) == 0 {
                    *slot = args[i + 1];
                }
            }
            g.b.op(Opcode::Continue, &[&next], vec![], vec![], &[]);
        });
        let types: Vec<TypeId> = kinds.iter().map(|&k| self.ty(k)).collect();
        let groups: [&[Value]; 4] = [&[lower], &[upper], &[step], &init];
        let id = self.b.op(Opcode::For, &groups, vec![], vec![body], &types);
        self.results(id, &kinds);
    }

    /// Makes a loop that counts to a small number and breaks with different results.
    fn endless_loop(&mut self) {
        let (kinds, out) = (self.some_kinds(), self.some_kinds());
        let mut init = vec![self.b.splat(I32, 0, &[])];
        init.extend(self.picks(&kinds));
        let args: Vec<Kind> = [Kind::Int].into_iter().chain(kinds.iter().copied()).collect();
        let last = self.below(4);
        let body = self.nested(&args, |g, args| {
            let (int, last) = (g.ty(Kind::Int), g.b.splat(I32, last, &[]));
            let attrs = vec![Attr::CmpPred(CmpPred::Ge), Attr::Sign(Sign::Signed)];
            let done = g.b.simple(Opcode::CmpI, &[args[0], last], attrs, g.ty(Kind::Bool));
            let then = g.nested(&[], |g, _| g.end(Opcode::Break, &out));
            let otherwise = g.nested(&[], |g, _| g.end(Opcode::Yield, &[]));
            g.b.op(Opcode::If, &[&[done]], vec![], vec![then, otherwise], &[]);
            let one = g.b.splat(I32, 1, &[]);
            let mut next = vec![g.b.simple(Opcode::AddI, &[args[0], one], vec![Attr::Overflow(Overflow::None)], int)];
            next.extend(g.picks(&kinds));
            g.b.op(Opcode::Continue, &[&next], vec![], vec![], &[]);
        });
        let types: Vec<TypeId> = out.iter().map(|&k| self.ty(k)).collect();
        let id = self.b.op(Opcode::Loop, &[&init], vec![], vec![body], &types);
        self.results(id, &out);
    }
}
