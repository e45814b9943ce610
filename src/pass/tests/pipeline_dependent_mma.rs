//! Tests that pipelined loops compute the results of the original loops, for random loops with two
//! dependent products.

use super::{optimize, random, well_formed};
use crate::dtype::DType::{F32, I1, I32};
use crate::ir::*;
use crate::pass::{pipeline_dependent_mma, split_extents};
use crate::util::test_sample::one_in;

/// Extents of matrices: rows and columns of a tile as it is loaded and stored. Other matrices are
/// the transposed one and the square one of the rows.
const POWER_OF_TWO: [i64; 2] = [2, 4];
/// Extents of which the columns are split.
const SPLIT: [i64; 2] = [4, 3];

struct Gen {
    b: Builder,
    state: u64,
    args: Vec<Value>,
    input: Value,
    /// Extents of the matrices.
    extents: [i64; 2],
}

const NONE: Attr = Attr::Overflow(Overflow::None);
const NEAREST: Attr = Attr::Rounding(Rounding::NearestEven);

impl Gen {
    fn count(&self) -> i64 {
        self.extents.iter().product()
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.state = self.state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.state >> 33) % bound
    }

    fn int(&mut self, value: i32) -> Value {
        self.b.splat(I32, u64::from(value as u32), &[])
    }

    fn float(&mut self, value: f32, shape: &[i64]) -> Value {
        self.b.splat(F32, value.to_bits().into(), shape)
    }

    fn op(&mut self, code: Opcode, operands: &[Value], attrs: Vec<Attr>, dtype: crate::dtype::DType) -> Value {
        let shape = self.b.module.shape(operands[0]).to_vec();
        let ty = self.b.module.intern(Type::tile(dtype, shape));
        self.b.simple(code, operands, attrs, ty)
    }

    fn float_op(&mut self, x: Value, y: Value) -> Value {
        let code = [Opcode::AddF, Opcode::MulF, Opcode::SubF, Opcode::MaxF][self.below(4) as usize];
        let attrs = if code == Opcode::MaxF { vec![] } else { vec![NEAREST] };
        self.op(code, &[x, y], attrs, F32)
    }

    fn view(&mut self, base: Value, elem: crate::dtype::DType) -> Value {
        let ty = Type::TensorView { elem, shape: vec![Some(64)], strides: vec![Some(1)], ptr_attr: None };
        let ty = self.b.module.intern(ty);
        let id = self.b.op(Opcode::MakeTensorView, &[&[base], &[], &[]], vec![], vec![], &[ty]);
        let array = self.b.module.op(id).results[0];
        let ty = Type::PartitionView {
            tile: vec![self.count() as i32],
            view: ty,
            dim_map: vec![0],
            padding: Some(Padding::Zero),
        };
        let ty = self.b.module.intern(ty);
        self.b.simple(Opcode::MakePartitionView, &[array], vec![], ty)
    }

    /// Loads a matrix of the input array as floats.
    fn load(&mut self, place: Value, shape: &[i64]) -> Value {
        let types = [Type::tile(I32, [self.count()]), Type::Token].map(|ty| self.b.module.intern(ty));
        let order = vec![Attr::MemOrder(MemOrder::Weak)];
        let id = self.b.op(Opcode::LoadView, &[&[self.input], &[place], &[]], order, vec![], &types);
        let tile = self.b.module.op(id).results[0];
        let floats = self.op(Opcode::IToF, &[tile], vec![Attr::Sign(Sign::Signed), NEAREST], F32);
        let small = self.float(1.0 / 64.0, &[self.count()]);
        let floats = self.op(Opcode::MulF, &[floats, small], vec![NEAREST], F32);
        let ty = self.b.module.intern(Type::tile(F32, shape));
        self.b.simple(Opcode::Reshape, &[floats], vec![], ty)
    }

    fn store(&mut self, view: Value, tile: Value, place: i32) {
        let ty = self.b.module.intern(Type::tile(F32, [self.count()]));
        let tile = self.b.simple(Opcode::Reshape, &[tile], vec![], ty);
        let token = self.b.module.intern(Type::Token);
        let place = self.int(place);
        let order = vec![Attr::MemOrder(MemOrder::Weak)];
        self.b.op(Opcode::StoreView, &[&[tile], &[view], &[place], &[]], order, vec![], &[token]);
    }

    fn mma(&mut self, a: Value, b: Value, acc: Value) -> Value {
        let ty = self.b.module.ty_id(acc);
        self.b.simple(Opcode::MmaF, &[a, b, acc], vec![], ty)
    }

    /// Returns the index of a load: from the counter, a carried number, or outside of the loop.
    fn place(&mut self, counter: Value, number: Value) -> Value {
        let mixed = self.op(Opcode::AddI, &[counter, number], vec![NONE], I32);
        let choice = [counter, number, mixed, self.args[3]][self.below(4) as usize];
        let seven = self.int(7);
        if self.below(3) == 0 { choice } else { self.op(Opcode::AndI, &[choice, seven], vec![], I32) }
    }

    /// Returns `x` or another tile, by a condition on numbers.
    fn branch(&mut self, counter: Value, x: Value) -> Value {
        let two = self.int(2);
        let sign = Attr::Sign(Sign::Signed);
        let less = self.op(Opcode::CmpI, &[counter, two], vec![Attr::CmpPred(CmpPred::Lt), sign], I1);
        let mut arms = Vec::new();
        for _ in 0..2 {
            self.b.begin_block(&[]);
            let result = if self.below(2) == 0 { x } else { self.float_op(x, x) };
            self.b.op(Opcode::Yield, &[&[result]], vec![], vec![], &[]);
            arms.push(self.b.end_block());
        }
        let ty = self.b.module.ty_id(x);
        let id = self.b.op(Opcode::If, &[&[less]], vec![], arms, &[ty]);
        self.b.module.op(id).results[0]
    }

    /// Makes the body of the loop. Returns the next values of the accumulator, a tile and a number.
    fn body(&mut self, counter: Value, [acc, tile, number]: [Value; 3], query: Value) -> [Value; 3] {
        let extents = self.extents;
        let place = self.place(counter, number);
        let left = self.load(place, &extents);
        let zero = self.float(0.0, &[extents[0]; 2]);
        let mut scores = self.mma(left, query, zero);
        if self.below(4) == 0 {
            scores = self.mma(tile, query, scores);
        }
        let mut weights = scores;
        for _ in 0..self.below(3) {
            weights = self.float_op(weights, scores);
        }
        if self.below(3) == 0 {
            weights = self.branch(counter, weights);
        }
        let place = self.place(counter, number);
        let value = if self.below(6) == 0 { left } else { self.load(place, &extents) };
        let start = match self.below(5) {
            0 => acc,
            1 => self.float_op(acc, tile),
            2 => self.float_op(acc, acc),
            3 => self.float(0.25, &extents),
            _ => value,
        };
        let acc = self.mma(weights, value, start);
        let tile = if self.below(3) == 0 { self.float_op(tile, left) } else { tile };
        let increment = [counter, number, self.args[3]][self.below(3) as usize];
        let number = self.op(Opcode::AddI, &[number, increment], vec![NONE], I32);
        [acc, tile, number]
    }
}

/// Makes a kernel with one such loop, as a function of the seed.
fn kernel(seed: u64, extents: [i64; 2]) -> Module {
    let mut b = Builder::new();
    let params =
        [Type::ptr(I32), Type::ptr(I32), Type::ptr(F32), Type::scalar(I32), Type::scalar(I32), Type::scalar(I32)];
    let args = b.begin_entry("turning", &params);
    let mut g = Gen { b, state: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) + 1, input: args[0], args, extents };
    g.input = g.view(g.args[0], I32);
    let output = g.view(g.args[2], F32);
    let one = g.int(1);
    let query = g.load(one, &[extents[1], extents[0]]);
    let (acc, tile) = (g.load(one, &extents), g.float(1.5, &extents));
    let bound = |g: &mut Gen| match g.below(4) {
        0 => g.args[3],
        1 => g.args[5],
        _ => {
            let value = g.below(6) as i32;
            g.int(value)
        }
    };
    let (lower, upper) = (bound(&mut g), bound(&mut g));
    let step = if g.below(2) == 0 { one } else { [g.int(2), g.int(3), g.args[4]][g.below(3) as usize] };
    let init = [acc, tile, one];
    let order = [[0, 1, 2], [2, 0, 1], [1, 2, 0]][g.below(3) as usize];
    let mut types = vec![g.b.module.ty_id(one)];
    types.extend(order.map(|i| g.b.module.ty_id(init[i])));
    let body = g.b.begin_block(&types);
    let block = g.b.module.block(body).args.clone();
    let mut carried = init;
    order.iter().zip(&block[1..]).for_each(|(&i, &arg)| carried[i] = arg);
    let next = g.body(block[0], carried, query);
    g.b.op(Opcode::Continue, &[&order.map(|i| next[i])], vec![], vec![], &[]);
    g.b.end_block();
    let id = g.b.op(
        Opcode::For,
        &[&[lower], &[upper], &[step], &order.map(|i| init[i])],
        vec![],
        vec![body],
        &order.map(|i| g.b.module.ty_id(init[i])),
    );
    let results = g.b.module.op(id).results.clone();
    for (place, &result) in results.iter().enumerate() {
        if order[place] < 2 {
            g.store(output, result, order[place] as i32);
        } else {
            let tile = g.load(result, &extents);
            g.store(output, tile, 2);
        }
    }
    g.b.op(Opcode::Return, &[&[]], vec![], vec![], &[]);
    g.b.module
}

/// Pipelines the loop of a module and compares the results. Returns false if the loop is not
/// pipelined.
fn pipelines_loop(module: &Module, seed: u64) -> bool {
    let (mut module, expected, before) = (module.clone(), random::run(module), module.to_string());
    if !pipeline_dependent_mma(&mut module, &|_| true) {
        assert_eq!(module.to_string(), before, "seed {seed}");
        return false;
    }
    well_formed(&module, &format!("seed {seed}, pipelined"));
    assert_eq!(random::run(&module), expected, "seed {seed}\n{before}\n{module}");
    optimize(&mut module);
    well_formed(&module, &format!("seed {seed}, pipelined and optimized"));
    assert_eq!(random::run(&module), expected, "seed {seed}, optimized\n{before}\n{module}");
    true
}

#[test]
fn pipelined_loops_keep_their_results() {
    let mut pipelined = 0;
    let seeds = 600 / one_in(6) as u64;
    for seed in 0..seeds {
        let module = kernel(seed, POWER_OF_TWO);
        well_formed(&module, &format!("seed {seed}"));
        let mut optimized = module.clone();
        optimize(&mut optimized);
        // As traced, and optimized as for a back end.
        pipelined += [module, optimized].iter().filter(|module| pipelines_loop(module, seed)).count();
    }
    assert!(pipelined > seeds as usize, "only {pipelined} loops were pipelined");
}

#[test]
fn mma_groups_move_together() {
    let mut pipelined = 0;
    let seeds = 200 / one_in(6) as u64;
    for seed in 0..seeds {
        let module = split_extents(&kernel(seed, SPLIT), true).expect("boxes").expect("extents that are cut");
        well_formed(&module, &format!("seed {seed}, cut"));
        pipelined += usize::from(pipelines_loop(&module, seed));
    }
    assert!(2 * pipelined > seeds as usize, "only {pipelined} loops were pipelined");
}

#[test]
fn loops_with_effects_stay() {
    // A loop is not pipelined if its body prints.
    let mut module = (0..)
        .map(|seed| kernel(seed, POWER_OF_TWO))
        .find(|module| pipeline_dependent_mma(&mut module.clone(), &|_| true))
        .expect("a loop");
    let entry = module.entries[0].body;
    let mut loops = module.block(entry).ops.iter().filter(|&&op| module.op(op).code == Opcode::For);
    let body = module.op(*loops.next_back().expect("the loop")).regions[0];
    let counter = module.block(body).args[0];
    let print =
        module.add_op(Opcode::Print, &[&[counter], &[]], vec![Attr::Text("%d".into())], vec![], &[], Loc::UNKNOWN);
    module.block_mut(body).ops.insert(0, print);
    well_formed(&module, "printing");
    assert!(!pipeline_dependent_mma(&mut module, &|_| true));
}
