//! Tests of memory tokens: each required order exists, and no more than the stage documents.
//!
//! [`Run`] executes the integers and control flow of a module. It records each access with the
//! accesses that its token path reaches. Two accesses of one array that may overlap, one of which
//! is a store, must be connected. The reference does not depend on the analysis of the stage.

use rustc_hash::FxHashMap;

use super::order_memory;
use crate::dtype::DType;
use crate::ir::{
    Attr, BlockId, Builder, CmpPred, ConstData, MemOrder, Module, OpId, Opcode, Overflow, Padding, Sign, Type, TypeId,
    Value, verify,
};

const SCALAR: Type = Type::Tile { elem: crate::ir::Elem::Num(DType::I32), shape: Vec::new() };

/// A kernel on some arrays, built op by op.
struct Kernel {
    b: Builder,
    int: TypeId,
    /// Partition view of each array.
    arrays: Vec<Value>,
}

impl Kernel {
    fn new(num_arrays: usize) -> Kernel {
        let mut b = Builder::new();
        let params = b.begin_entry("k", &vec![Type::ptr(DType::F32); num_arrays]);
        let int = b.module.intern(SCALAR);
        let tensor =
            Type::TensorView { elem: DType::F32, shape: vec![Some(1024)], strides: vec![Some(1)], ptr_attr: None };
        let tensor = b.module.intern(tensor);
        let view = Type::PartitionView { tile: vec![8], view: tensor, dim_map: vec![0], padding: Some(Padding::Zero) };
        let view = b.module.intern(view);
        let arrays = params
            .iter()
            .map(|&base| {
                let id = b.op(Opcode::MakeTensorView, &[&[base], &[], &[]], vec![], vec![], &[tensor]);
                let made = b.module.op(id).results[0];
                b.simple(Opcode::MakePartitionView, &[made], vec![], view)
            })
            .collect();
        Kernel { b, int, arrays }
    }

    fn int(&mut self, value: i64) -> Value {
        self.b.splat(DType::I32, value as u64 & 0xFFFF_FFFF, &[])
    }

    fn binary(&mut self, code: Opcode, a: Value, b: Value) -> Value {
        self.b.simple(code, &[a, b], vec![Attr::Overflow(Overflow::None)], self.int)
    }

    fn load(&mut self, array: usize, index: Value) -> Value {
        let types = [Type::tile(DType::F32, [8]), Type::Token].map(|t| self.b.module.intern(t));
        let attrs = vec![Attr::MemOrder(MemOrder::Weak)];
        let view = self.arrays[array];
        let id = self.b.op(Opcode::LoadView, &[&[view], &[index], &[]], attrs, vec![], &types);
        self.b.module.op(id).results[0]
    }

    fn store(&mut self, array: usize, index: Value) {
        let tile = self.b.splat(DType::F32, 0, &[8]);
        let token = self.b.module.intern(Type::Token);
        let attrs = vec![Attr::MemOrder(MemOrder::Weak)];
        let view = self.arrays[array];
        self.b.op(Opcode::StoreView, &[&[tile], &[view], &[index], &[]], attrs, vec![], &[token]);
    }

    fn counted(&mut self, count: i64, body: impl FnOnce(&mut Kernel, Value)) {
        let (zero, end, one) = (self.int(0), self.int(count), self.int(1));
        let block = self.b.begin_block(&[self.int]);
        let counter = self.b.module.block(block).args[0];
        body(self, counter);
        self.b.op(Opcode::Continue, &[&[]], vec![], vec![], &[]);
        self.b.end_block();
        self.b.op(Opcode::For, &[&[zero], &[end], &[one], &[]], vec![], vec![block], &[]);
    }

    fn less(&mut self, a: Value, b: Value) -> Value {
        let truth = self.b.module.intern(Type::scalar(DType::I1));
        self.b.simple(Opcode::CmpI, &[a, b], vec![Attr::CmpPred(CmpPred::Lt), Attr::Sign(Sign::Signed)], truth)
    }

    fn branch(&mut self, condition: Value, yes: impl FnOnce(&mut Kernel), no: impl FnOnce(&mut Kernel)) {
        let region = |kernel: &mut Kernel, fill: Box<dyn FnOnce(&mut Kernel) + '_>| {
            let block = kernel.b.begin_block(&[]);
            fill(kernel);
            kernel.b.op(Opcode::Yield, &[&[]], vec![], vec![], &[]);
            kernel.b.end_block();
            block
        };
        let regions = vec![region(self, Box::new(yes)), region(self, Box::new(no))];
        self.b.op(Opcode::If, &[&[condition]], vec![], regions, &[]);
    }

    /// Builds a loop without a range that counts up and exits after `count` iterations, in the
    /// middle of the body.
    fn rounds(&mut self, count: i64, before: impl FnOnce(&mut Kernel, Value), after: impl FnOnce(&mut Kernel, Value)) {
        let (zero, end, one) = (self.int(0), self.int(count), self.int(1));
        let block = self.b.begin_block(&[self.int]);
        let round = self.b.module.block(block).args[0];
        before(self, round);
        let goes_on = self.less(round, end);
        let stay = self.b.begin_block(&[]);
        self.b.op(Opcode::Yield, &[&[]], vec![], vec![], &[]);
        self.b.end_block();
        let leave = self.b.begin_block(&[]);
        self.b.op(Opcode::Break, &[&[]], vec![], vec![], &[]);
        self.b.end_block();
        self.b.op(Opcode::If, &[&[goes_on]], vec![], vec![stay, leave], &[]);
        after(self, round);
        let next = self.binary(Opcode::AddI, round, one);
        self.b.op(Opcode::Continue, &[&[next]], vec![], vec![], &[]);
        self.b.end_block();
        self.b.op(Opcode::Loop, &[&[zero]], vec![], vec![block], &[]);
    }

    /// Returns the kernel with its order.
    fn ordered(mut self) -> Module {
        self.b.op(Opcode::Return, &[&[]], vec![], vec![], &[]);
        verify(&self.b.module).expect("a well-formed kernel");
        order_memory(&mut self.b.module);
        if let Err(problems) = verify(&self.b.module) {
            panic!("{}\n{}", problems[0], self.b.module);
        }
        self.b.module
    }
}

/// One executed access.
struct Event {
    array: Value,
    tile: i64,
    writes: bool,
    /// Events that precede it.
    before: Vec<usize>,
}

/// End of a block.
enum End {
    Yield(Vec<Value>),
    Continue(Vec<Value>),
    Break(Vec<Value>),
    Return,
}

#[derive(Default)]
struct Run {
    ints: FxHashMap<Value, i64>,
    /// Events that a token includes, with all their predecessors.
    tokens: FxHashMap<Value, Vec<usize>>,
    events: Vec<Event>,
}

impl Run {
    fn new(module: &Module) -> Run {
        let mut run = Run::default();
        run.block(module, module.entries[0].body);
        run
    }

    /// Copies simultaneously: a value may be both source and target.
    fn copy_all(&mut self, from: &[Value], to: &[Value]) {
        let old: Vec<_> = from.iter().map(|v| (self.ints.get(v).copied(), self.tokens.get(v).cloned())).collect();
        for ((int, token), &to) in old.into_iter().zip(to) {
            int.map(|int| self.ints.insert(to, int));
            token.map(|token| self.tokens.insert(to, token));
        }
    }

    fn block(&mut self, module: &Module, block: BlockId) -> End {
        for &id in &module.block(block).ops {
            if let Some(end) = self.op(module, id) {
                return end;
            }
        }
        End::Yield(Vec::new())
    }

    fn op(&mut self, module: &Module, id: OpId) -> Option<End> {
        let op = module.op(id);
        let int = |run: &Run, i: usize| run.ints[&op.operands[i]];
        match op.code {
            Opcode::Constant => {
                if let Some(ConstData::Splat(bits)) = op.const_data() {
                    self.ints.insert(op.results[0], i64::from(*bits as i32));
                }
            }
            // 32-bit integers, which wrap.
            Opcode::AddI => _ = self.ints.insert(op.results[0], (int(self, 0) + int(self, 1)) as i32 as i64),
            Opcode::SubI => _ = self.ints.insert(op.results[0], (int(self, 0) - int(self, 1)) as i32 as i64),
            Opcode::MulI => _ = self.ints.insert(op.results[0], (int(self, 0) * int(self, 1)) as i32 as i64),
            Opcode::AndI => _ = self.ints.insert(op.results[0], int(self, 0) & int(self, 1)),
            Opcode::CmpI => _ = self.ints.insert(op.results[0], (int(self, 0) < int(self, 1)).into()),
            Opcode::MakeToken => _ = self.tokens.insert(op.results[0], Vec::new()),
            Opcode::JoinTokens => {
                let all = op.operands.iter().flat_map(|v| self.tokens[v].clone()).collect();
                self.tokens.insert(op.results[0], all);
            }
            Opcode::LoadView | Opcode::StoreView => self.access(module, id),
            Opcode::If => {
                let region = op.regions[usize::from(int(self, 0) == 0)];
                match self.block(module, region) {
                    End::Yield(values) => self.copy_all(&values, &op.results),
                    other => return Some(other),
                }
            }
            Opcode::For => {
                let (mut counter, end, step) = (int(self, 0), int(self, 1), int(self, 2));
                let args = module.block(op.regions[0]).args.clone();
                self.copy_all(&op.operands[3..], &op.results);
                while counter < end {
                    self.copy_all(&op.results, &args[1..]);
                    self.ints.insert(args[0], counter);
                    let End::Continue(values) = self.block(module, op.regions[0]) else { panic!("a `for` continues") };
                    self.copy_all(&values, &op.results);
                    counter += step;
                }
            }
            Opcode::Loop => {
                let args = module.block(op.regions[0]).args.clone();
                self.copy_all(&op.operands, &args);
                loop {
                    match self.block(module, op.regions[0]) {
                        End::Continue(values) => self.copy_all(&values, &args),
                        End::Break(values) => {
                            self.copy_all(&values, &op.results);
                            break;
                        }
                        other => return Some(other),
                    }
                }
            }
            Opcode::Yield => return Some(End::Yield(op.operands.clone())),
            Opcode::Continue => return Some(End::Continue(op.operands.clone())),
            Opcode::Break => return Some(End::Break(op.operands.clone())),
            Opcode::Return => return Some(End::Return),
            _ => {}
        }
        None
    }

    fn access(&mut self, module: &Module, id: OpId) {
        let op = module.op(id);
        let mut before: Vec<usize> = Vec::new();
        for token in op.operand_group("token") {
            for &event in &self.tokens[token] {
                before.push(event);
                before.extend(&self.events[event].before);
            }
        }
        before.sort_unstable();
        before.dedup();
        let tile = self.ints[&op.operand_group("index")[0]];
        let array = op.operand_group("view")[0];
        self.events.push(Event { array, tile, writes: op.code == Opcode::StoreView, before });
        let token = *op.results.last().expect("a token");
        self.tokens.insert(token, vec![self.events.len() - 1]);
    }

    /// Asserts that each pair of accesses that needs an order has one.
    fn check(&self, module: &Module) {
        for (later, b) in self.events.iter().enumerate() {
            for (earlier, a) in self.events[..later].iter().enumerate() {
                let conflict = a.array == b.array && a.tile == b.tile && (a.writes || b.writes);
                assert!(!conflict || b.before.contains(&earlier), "access {earlier} is not before {later}\n{module}");
            }
        }
    }

    /// Returns the number of ordered pairs of accesses.
    fn ordered_pairs(&self) -> usize {
        self.events.iter().map(|event| event.before.len()).sum()
    }
}

/// Runs and checks a kernel; returns the number of ordered pairs and the text.
fn checked(kernel: Kernel) -> (usize, String) {
    let module = kernel.ordered();
    let run = Run::new(&module);
    run.check(&module);
    (run.ordered_pairs(), module.to_string())
}

#[test]
fn distinct_arrays_and_read_only_ones_are_free() {
    let mut k = Kernel::new(3);
    let i = k.int(0);
    k.load(0, i);
    k.load(1, i);
    k.store(2, i);
    k.load(0, i);
    let (pairs, text) = checked(k);
    assert_eq!(pairs, 0, "{text}");
    assert!(!text.contains("make_token") && !text.contains("] token ="), "{text}");
}

#[test]
fn loads_and_stores_of_one_array_are_ordered() {
    let mut k = Kernel::new(1);
    let i = k.int(0);
    k.load(0, i);
    k.load(0, i);
    k.store(0, i);
    k.load(0, i);
    k.store(0, i);
    k.store(0, i);
    let (pairs, text) = checked(k);
    // The two loads are unordered: 15 pairs minus one.
    assert_eq!(pairs, 14, "{text}");
}

#[test]
fn a_store_that_reads_nothing_back_needs_no_carried_token() {
    let mut k = Kernel::new(1);
    k.counted(4, |k, i| k.store(0, i));
    let (pairs, text) = checked(k);
    assert_eq!(pairs, 0, "{text}");
    assert!(!text.contains("iter_values"), "{text}");
}

#[test]
fn stores_at_injective_indices_are_free() {
    let mut k = Kernel::new(1);
    k.counted(4, |k, i| {
        let (three, one) = (k.int(3), k.int(1));
        let scaled = k.binary(Opcode::MulI, i, three);
        let index = k.binary(Opcode::SubI, one, scaled);
        k.load(0, index);
        k.store(0, index);
    });
    let (pairs, text) = checked(k);
    // Each store only waits for the load of its own iteration.
    assert_eq!(pairs, 4, "{text}");
}

#[test]
fn an_array_that_each_iteration_describes_anew_is_carried() {
    let mut k = Kernel::new(1);
    k.counted(4, |k, i| {
        let base = k.b.module.block(k.b.module.entries[0].body).args[0];
        let cut = k.b.module.op(k.b.module.defining_op(k.arrays[0]).unwrap()).clone();
        let (view, tensor) = (k.b.module.ty_id(k.arrays[0]), k.b.module.ty_id(cut.operands[0]));
        let pointer = k.b.module.ty_id(base);
        let moved = k.b.simple(Opcode::Offset, &[base, i], vec![], pointer);
        let id = k.b.op(Opcode::MakeTensorView, &[&[moved], &[], &[]], vec![], vec![], &[tensor]);
        let made = k.b.module.op(id).results[0];
        k.arrays[0] = k.b.simple(Opcode::MakePartitionView, &[made], vec![], view);
        k.store(0, i);
    });
    assert!(k.ordered().to_string().contains("iter_values"));
}

#[test]
fn stores_at_other_indices_are_carried() {
    for (code, operand) in [(Opcode::AndI, 1), (Opcode::MulI, 0)] {
        let mut k = Kernel::new(1);
        k.counted(5, |k, i| {
            let operand = k.int(operand);
            let attrs = if code == Opcode::AndI { vec![] } else { vec![Attr::Overflow(Overflow::None)] };
            let index = k.b.simple(code, &[i, operand], attrs, k.int);
            k.store(0, index);
        });
        let (pairs, text) = checked(k);
        assert!(text.contains("iter_values") && pairs == 10, "{text}");
    }
}

#[test]
fn even_factors_repeat_where_they_wrap() {
    for (factor, carried) in [(3i64, false), ((1 << 30) + 1, false), (1 << 30, true)] {
        let mut k = Kernel::new(1);
        k.counted(6, |k, i| {
            let factor = k.int(factor);
            let index = k.binary(Opcode::MulI, i, factor);
            k.store(0, index);
        });
        let (_, text) = checked(k);
        assert_eq!(text.contains("iter_values"), carried, "{factor}\n{text}");
    }
}

/// Returns the text of a kernel after the stage.
fn ordered_text(body: &str) -> String {
    let params = "%a: tile<ptr<f32>>, %b: tile<ptr<f32>>, %flag: tile<ptr<i32>>, %c: tile<i1>, %x: tile<f32>";
    let text = format!("entry @k({params}) {{\n{body}\n  return\n}}\n");
    let mut module = Module::parse("k", &text).unwrap_or_else(|problem| panic!("{problem}"));
    verify(&module).unwrap_or_else(|problems| panic!("{}", problems[0]));
    order_memory(&mut module);
    verify(&module).unwrap_or_else(|problems| panic!("{}\n{module}", problems[0]));
    module.to_string()
}

#[test]
fn read_only_loads_remain_between_acquire_and_release() {
    let load = "load_ptr_tko weak %b : tile<ptr<f32>> -> tile<f32>, token";
    let acquire = "load_ptr_tko acquire device %flag : tile<ptr<i32>> -> tile<i32>, token";
    let text = ordered_text(&format!("  %f, %t = {acquire}\n  %v, %u = {load}"));
    assert!(text.contains("load_ptr_tko weak %arg1 token=%result_token : "), "{text}");
    let release = "store_ptr_tko release device %flag, %n : tile<ptr<i32>>, tile<i32> -> token";
    let text = ordered_text(&format!("  %v, %u = {load}\n  %n = constant <i32: 1> : tile<i32>\n  %t = {release}"));
    assert!(text.contains("store_ptr_tko release device %arg2, %cst_1_i32 token=%result_token : "), "{text}");
    // The second one of two relaxed reads must not read an older value than the first one.
    let relaxed = "load_ptr_tko relaxed device %flag : tile<ptr<i32>> -> tile<i32>, token";
    let text = ordered_text(&format!("  %f, %t = {relaxed}\n  %g, %u = {relaxed}"));
    assert!(text.contains("load_ptr_tko relaxed device %arg2 token=%result_token : "), "{text}");
    // Weak reads have no order.
    let text = ordered_text(&format!("  %v, %u = {load}\n  %w, %s = {load}"));
    assert!(!text.contains("token="), "{text}");
}

#[test]
fn an_address_of_unknown_origin_may_be_any() {
    let store = |to: &str| format!("store_ptr_tko weak {to}, %x : tile<ptr<f32>>, tile<f32> -> token");
    let load = "load_ptr_tko weak %a : tile<ptr<f32>> -> tile<f32>, token";
    let chosen = "  %p = select %c, %a, %b : tile<i1>, tile<ptr<f32>>";
    let text = ordered_text(&format!("{chosen}\n  %t = {}\n  %v, %u = {load}", store("%p")));
    assert!(text.contains("load_ptr_tko weak %arg0 token="), "{text}");
    // Known roots are distinct.
    let text = ordered_text(&format!("  %t = {}\n  %v, %u = {load}", store("%b")));
    assert!(!text.contains("token="), "{text}");
    let text = ordered_text(&format!("  %t = {}\n  %v, %u = {load}", store("%a")));
    assert!(text.contains("load_ptr_tko weak %arg0 token="), "{text}");
}

/// Tiles with atomics of the same array, and with those of another array.
#[test]
fn tiles_of_memory_that_is_written_by_element_keep_from_the_copy_engine() {
    let view = |base: &str| {
        format!(
            "  %v = make_tensor_view {base}, shape = [], strides = [] : tensor_view<64xf32, strides=[1]>\n  \
             %w = make_partition_view %v : partition_view<tile=(8), tensor_view<64xf32, strides=[1]>>\n"
        )
    };
    let add =
        "  %old, %t = atomic_rmw_tko relaxed device %a, addf, %x : tile<ptr<f32>>, tile<f32> -> tile<f32>, token\n";
    let store = "  %i = constant <i32: 0> : tile<i32>\n  %z = constant <f32: 0.0> : tile<8xf32>\n  \
                 %s = store_view_tko weak %z, %w[%i] : tile<8xf32>, \
                 partition_view<tile=(8), tensor_view<64xf32, strides=[1]>>, tile<i32> -> token";
    let same = ordered_text(&[add, &view("%a"), store].concat());
    assert!(same.contains("allow_tma = false"), "{same}");
    let other = ordered_text(&[add, &view("%b"), store].concat());
    assert!(!other.contains("allow_tma"), "{other}");
}

#[test]
fn injective_stores_with_other_indices_are_carried() {
    // Each iteration reads the element that the previous one wrote.
    let mut k = Kernel::new(1);
    k.counted(4, |k, i| {
        let one = k.int(1);
        let before = k.binary(Opcode::SubI, i, one);
        k.load(0, before);
        k.store(0, i);
    });
    let (_, text) = checked(k);
    assert!(text.contains("iter_values"), "{text}");
    // Two arrays of tiles that overlap: i and i + 1.
    let mut k = Kernel::new(1);
    k.counted(4, |k, i| {
        let one = k.int(1);
        let next = k.binary(Opcode::AddI, i, one);
        k.store(0, i);
        k.store(0, next);
    });
    checked(k);
}

#[test]
fn an_index_of_the_outer_loop_is_not_injective_in_the_inner_one() {
    let mut k = Kernel::new(1);
    k.counted(3, |k, i| k.counted(3, |k, _| k.store(0, i)));
    let (_, text) = checked(k);
    assert_eq!(text.matches("iter_values").count(), 1, "{text}");
    let mut k = Kernel::new(1);
    k.counted(3, |k, _| k.counted(3, |k, j| k.store(0, j)));
    checked(k);
}

#[test]
fn ops_after_a_loop_wait_for_all_iterations() {
    for injective in [true, false] {
        let mut k = Kernel::new(1);
        let two = k.int(2);
        k.store(0, two);
        k.counted(4, |k, i| k.store(0, if injective { i } else { two }));
        k.load(0, two);
        checked(k);
        // Loads of a loop, and a store after it.
        let mut k = Kernel::new(1);
        let two = k.int(2);
        k.counted(4, |k, i| _ = k.load(0, if injective { i } else { two }));
        k.store(0, two);
        checked(k);
    }
}

#[test]
fn a_loop_that_does_not_run_keeps_the_order_around_it() {
    for count in [0, 1] {
        let mut k = Kernel::new(1);
        let zero = k.int(0);
        k.store(0, zero);
        k.counted(count, |k, i| k.store(0, i));
        k.load(0, zero);
        k.counted(count, |k, i| _ = k.load(0, i));
        k.store(0, zero);
        checked(k);
    }
}

#[test]
fn loads_of_a_loop_do_not_wait_for_each_other() {
    let mut k = Kernel::new(1);
    let zero = k.int(0);
    k.counted(4, |k, i| _ = k.load(0, i));
    k.store(0, zero);
    let (pairs, text) = checked(k);
    assert_eq!(pairs, 4, "{text}");
}

#[test]
fn branches_pass_their_accesses_on() {
    for take in [0, 1] {
        let mut k = Kernel::new(2);
        let (zero, choice) = (k.int(0), k.int(take));
        let condition = k.less(choice, zero);
        k.load(0, zero);
        k.branch(condition, |k| k.store(0, zero), |k| _ = k.load(0, zero));
        k.branch(condition, |_| {}, |k| k.store(1, zero));
        k.store(0, zero);
        k.load(1, zero);
        checked(k);
    }
}

#[test]
fn branches_inside_loops() {
    let mut k = Kernel::new(2);
    let (zero, two) = (k.int(0), k.int(2));
    k.counted(5, |k, i| {
        let condition = k.less(i, two);
        k.branch(condition, |k| k.store(0, zero), |k| _ = k.load(0, zero));
        k.branch(condition, |k| k.store(1, i), |_| {});
    });
    k.load(0, zero);
    k.load(1, zero);
    k.store(1, zero);
    checked(k);
}

#[test]
fn loops_that_leave_in_the_middle() {
    let mut k = Kernel::new(2);
    let zero = k.int(0);
    k.rounds(
        3,
        |k, round| {
            k.store(0, zero);
            k.load(1, round);
        },
        |k, _| _ = k.load(0, zero),
    );
    k.store(0, zero);
    k.store(1, zero);
    checked(k);
}

#[test]
fn random_kernels_keep_their_order() {
    let mut state = 0x2545_F491_4F6C_DD1Du64;
    let mut next = move |n: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 20) % n
    };
    for _ in 0..300 {
        let mut k = Kernel::new(2);
        let start = k.int(1);
        fill(&mut k, &mut next, start, 0);
        checked(k);
    }
}

/// Adds some accesses, loops and branches; `index` is the innermost counter.
fn fill(k: &mut Kernel, next: &mut dyn FnMut(u64) -> u64, index: Value, depth: u32) {
    for _ in 0..1 + next(4) {
        let array = next(2) as usize;
        let fixed = k.int(next(3) as i64);
        let place = if next(2) == 0 { index } else { fixed };
        match next(if depth < 3 { 7 } else { 4 }) {
            0 | 1 => _ = k.load(array, place),
            2 | 3 => k.store(array, place),
            4 => {
                let count = next(4) as i64;
                k.counted(count, |k, i| fill(k, &mut *next, i, depth + 1));
            }
            5 => {
                let condition = k.less(index, fixed);
                let block = |k: &mut Kernel, next: &mut dyn FnMut(u64) -> u64| fill(k, next, index, depth + 1);
                let next = std::cell::RefCell::new(&mut *next);
                k.branch(condition, |k| block(k, &mut **next.borrow_mut()), |k| block(k, &mut **next.borrow_mut()));
            }
            _ => {
                let count = next(3) as i64;
                let next = std::cell::RefCell::new(&mut *next);
                k.rounds(
                    count,
                    |k, round| fill(k, &mut **next.borrow_mut(), round, depth + 1),
                    |k, round| fill(k, &mut **next.borrow_mut(), round, depth + 1),
                );
            }
        }
    }
}
