//! MMAs in the emulator, and assembled by ptxas.

mod assembled;
mod emulator;

use super::super::isa::emit::{self, Param};
use super::super::isa::inst::*;
use super::*;
use crate::target::Target;
use crate::util::test_sample::one_in;
use emulator::{EmulatedBlock, decode, encode};

fn request(types: [DType; 3], extents: [i64; 4], num_warps: usize, contiguous: [bool; 2]) -> MmaRequest {
    let [a, b, acc] = types;
    let spec = |dtype, k_contiguous| OperandSpec { dtype, signed: true, k_contiguous, max_swizzle_bytes: 128 };
    MmaRequest {
        extents,
        rank: if extents[0] > 1 { 3 } else { 2 },
        a: spec(a, contiguous[0]),
        b: spec(b, contiguous[1]),
        acc,
        fast: false,
        num_warps,
        target: Target { arch: 90, accelerated: false }, // the model knows `mma.sync` alone,
    }
}

/// Returns the type by which an element is read.
fn number_type(dtype: DType, signed: bool) -> Ty {
    match dtype {
        DType::F16 => Ty::F16,
        DType::BF16 => Ty::BF16,
        DType::TF32 | DType::F32 => Ty::F32,
        DType::F64 => Ty::F64,
        DType::I8 if signed => Ty::S8,
        DType::I8 => Ty::U8,
        DType::I32 => Ty::S32,
        DType::F8E4M3FN => Ty::E4M3,
        DType::F8E5M2 => Ty::E5M2,
        other => panic!("{other} in a product"),
    }
}

/// Returns the class of the register of one element.
fn element_class(dtype: DType) -> RegClass {
    match dtype {
        DType::F16 | DType::BF16 => RegClass::B16,
        DType::F32 => RegClass::F32,
        DType::F64 => RegClass::F64,
        _ => RegClass::B32,
    }
}

/// Returns the same request for a target with `wgmma`.
fn accelerated(types: [DType; 3], extents: [i64; 4], num_warps: usize, contiguous: [bool; 2]) -> MmaRequest {
    MmaRequest { target: Target::SM_90A, ..request(types, extents, num_warps, contiguous) }
}

/// An MMA in the emulator: operands from shared memory, or one from registers.
struct EmulatedProduct {
    plan: MmaPlan,
    request: MmaRequest,
    function: emit::Function,
    acc: Vec<Reg>,
    /// The operand in registers, if there is one; true for the right one.
    in_registers: Option<bool>,
    slots: Vec<Reg>,
    /// The accumulator starts at zero.
    from_zero: bool,
    /// Operands are f32 that must be rounded, if the plan supports it.
    unrounded: bool,
}

const RIGHT_BASE: usize = 1 << 17;

impl EmulatedProduct {
    fn new(request: MmaRequest, from_registers: bool) -> EmulatedProduct {
        EmulatedProduct::with(request, from_registers, false, false)
    }

    fn with(request: MmaRequest, from_registers: bool, from_zero: bool, unrounded: bool) -> EmulatedProduct {
        EmulatedProduct::emitted(request, [from_registers, from_zero, unrounded, false])
    }

    fn emitted(request: MmaRequest, [from_registers, from_zero, unrounded, carries]: [bool; 4]) -> EmulatedProduct {
        let plan = MmaPlan::new(&request).expect("a plan");
        let mut b = Builder::new(request.target, "product", 32 * request.num_warps as u32);
        let acc = b.fresh_vec(element_class(request.acc), plan.acc.num_registers());
        let in_registers = from_registers.then(|| plan.a.registers.is_none());
        let held = if in_registers == Some(true) { &plan.b } else { &plan.a };
        let count = held.registers.as_ref().map_or(0, |layout| layout.num_registers());
        let slots = b.fresh_vec(element_class(held.dtype), count);
        let thread = b.special(Special::TidX).reg();
        let operands: Vec<Operand> = slots.iter().map(|&reg| reg.into()).collect();
        let source = |right: bool, operand: &OperandPlan, base: usize| {
            let address = Operand::from(base as u32);
            match in_registers == Some(right) {
                true => OperandSource::Registers(&operands),
                false if unrounded && operand.may_be_unrounded => OperandSource::Unrounded(address),
                false => OperandSource::Shared(address),
            }
        };
        let sources = (source(false, &plan.a, 0), source(true, &plan.b, RIGHT_BASE));
        let part = MmaPart {
            plan: &plan,
            left: sources.0,
            right: sources.1,
            acc: &acc,
            accumulate: !from_zero,
            widens: false,
        };
        // A loop of one iteration, with the last step after it.
        let carried = if carries { plan.start_carried_step(&mut b) } else { None };
        if let Some(carried) = carried {
            let emission = MmaPlan::begin_with_carried(&mut b, thread, &part, &carried).expect("shared operands");
            emission.leave_last_step(&mut b, &carried);
            plan.finish_carried_step(&mut b, &acc, &carried);
        } else {
            assert!(!carries, "{} carries no step", plan.describe());
            MmaPlan::lower_together(&mut b, thread, None, &[part]);
        }
        if plan.is_asynchronous() {
            MmaPlan::wait(&mut b, 0);
        }
        EmulatedProduct { function: b.finish(), plan, request, acc, in_registers, slots, from_zero, unrounded }
    }

    /// Compares with the sums of products and returns the bank conflicts of the loads.
    fn check(&self) -> usize {
        let [batch, m, n, k] = self.request.extents.map(|extent| extent as usize);
        let value = |seed: usize, i: usize| {
            let mixed = (i + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
            let least = if seed > 0 { -3.0 } else { 0.0 };
            (mixed % 4) as f64 + least
        };
        let is_unsigned = |spec: OperandSpec| spec.dtype == DType::I8 && !spec.signed;
        let left: Vec<f64> = (0..batch * m * k).map(|i| value(!is_unsigned(self.request.a) as usize, i)).collect();
        let right: Vec<f64> = (0..batch * k * n).map(|i| value(2 * !is_unsigned(self.request.b) as usize, i)).collect();
        let start: Vec<f64> = (0..batch * m * n).map(|i| value(5, i)).collect();
        // Bits that rounding removes.
        let excess = |operand: &OperandPlan, i: usize| match self.unrounded && operand.may_be_unrounded {
            true => 1 + (i % 0xfff) as u64,
            false => 0,
        };

        let mut block = EmulatedBlock::new(&self.function, 2 * RIGHT_BASE);
        let operands = [(&self.plan.a, self.request.a, &left, 0), (&self.plan.b, self.request.b, &right, RIGHT_BASE)];
        for (operand, spec, values, base) in operands {
            let ty = number_type(operand.dtype, spec.signed);
            let bytes = operand.shared.element_bytes;
            for (i, &value) in values.iter().enumerate() {
                let at = base + operand.shared.offset(i as u32) as usize;
                let code = match value {
                    0.0 => 0,
                    value => encode(ty, value) + excess(operand, i),
                };
                block.shared[at..at + bytes].copy_from_slice(&code.to_le_bytes()[..bytes]);
            }
        }
        let acc_type = number_type(self.request.acc, true);
        let (held, spec, held_values) = match self.in_registers {
            Some(true) => (&self.plan.b, self.request.b, &right),
            _ => (&self.plan.a, self.request.a, &left),
        };
        let held_type = number_type(held.dtype, spec.signed);
        for thread in 0..32 * self.request.num_warps {
            let (lane, warp) = (thread % 32, thread / 32);
            for (r, &reg) in self.slots.iter().enumerate() {
                let element = held.registers.as_ref().unwrap().element(r, lane, warp);
                block.set(thread, reg, encode(held_type, held_values[element as usize]));
            }
            for (r, &reg) in self.acc.iter().enumerate() {
                let element = self.plan.acc.element(r, lane, warp);
                block.set(thread, reg, encode(acc_type, start[element as usize]));
            }
        }
        block.run(&self.function);
        for thread in 0..32 * self.request.num_warps {
            for (r, &reg) in self.acc.iter().enumerate() {
                let element = self.plan.acc.element(r, thread % 32, thread / 32) as usize;
                let (bat, row, column) = (element / (m * n), element / n % m, element % n);
                let products = (0..k).map(|i| left[(bat * m + row) * k + i] * right[(bat * k + i) * n + column]);
                let start = if self.from_zero { 0.0 } else { start[element] };
                let want = start + products.sum::<f64>();
                let got = decode(acc_type, block.get(thread, reg));
                assert_eq!(got, want, "{} of {:?}, element {element}", self.plan.describe(), self.request);
            }
        }
        block.conflicts
    }
}

/// Checks MMAs of one left operand with adjacent right operands of these columns, as one MMA.
fn check_wide(types: [DType; 3], widths: &[i64], along_k: bool, k: i64) {
    let (m, n) = (128, widths.iter().sum::<i64>());
    let size = i64::from(types[1].storage_bits() / 8);
    let unit = widths.iter().min().unwrap() * size;
    let plan = |&width: &i64| {
        let mut request = accelerated(types, [1, m, width, k], 8, [true, along_k]);
        request.fast = true;
        request.b.max_swizzle_bytes = unit.min(128);
        MmaPlan::new(&request).expect("a plan")
    };
    let plans: Vec<MmaPlan> = widths.iter().map(plan).collect();
    let rows = if along_k { n } else { k };
    let span = plans[0].b.panels.expect("panels").swizzle_bytes;
    let mut b = Builder::new(Target::SM_90A, "product", 256);
    let accs: Vec<Vec<Reg>> = plans.iter().map(|plan| b.fresh_vec(RegClass::F32, plan.acc.num_registers())).collect();
    let thread = b.special(Special::TidX).reg();
    let mut start = RIGHT_BASE as i64;
    let mut parts = Vec::new();
    for (index, (plan, acc)) in plans.iter().zip(&accs).enumerate() {
        if index > 0 {
            start += plans[index - 1].widened_by(plan, rows).expect("a wider product");
        }
        let (left, right) =
            (OperandSource::Shared(Operand::from(0u32)), OperandSource::Panels(Operand::from(start as u32), rows));
        parts.push(MmaPart { plan, left, right, acc, accumulate: false, widens: index > 0 });
    }
    MmaPlan::lower_together(&mut b, thread, None, &parts);
    MmaPlan::wait(&mut b, 0);
    let function = b.finish();
    let issued = |line: &&Line| matches!(line, Line::Inst(Inst { op: Opcode::Wgmma { .. }, .. }));
    assert_eq!(function.lines.iter().filter(issued).count() as i64, k * size / 32, "one instruction for each step");

    let value = |seed: i64, i: i64| (((i + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15u64 as i64) >> 40) & 3) as f64 - 1.0;
    let ty = number_type(types[1], true);
    let mut block = EmulatedBlock::new(&function, 4 * RIGHT_BASE);
    let mut put = |at: usize, code: u64| {
        block.shared[at..at + size as usize].copy_from_slice(&code.to_le_bytes()[..size as usize]);
    };
    for i in 0..m * k {
        put(plans[0].a.shared.offset(i as u32) as usize, encode(number_type(types[0], true), value(0, i)));
    }
    for i in 0..n * k {
        // Panels of swizzled rows, one after another.
        let (column, along) = (i / k, i % k);
        let (row, offset) = if along_k { (column, along * size) } else { (along, column * size) };
        let plain = offset / span * rows * span + row * span + offset % span;
        let swizzled = plain ^ (plain >> 3 & (span - 16));
        put(RIGHT_BASE + swizzled as usize, encode(ty, value(7, i)));
    }
    block.run(&function);
    let mut first = 0;
    for (plan, (acc, width)) in plans.iter().zip(accs.iter().zip(widths)) {
        for thread in 0..256 {
            for (r, &reg) in acc.iter().enumerate() {
                let element = i64::from(plan.acc.element(r, thread % 32, thread / 32));
                let (row, column) = (element / width, first + element % width);
                let want: f64 = (0..k).map(|i| value(0, row * k + i) * value(7, column * k + i)).sum();
                assert_eq!(decode(Ty::F32, block.get(thread, reg)), want, "{types:?} {widths:?} {row}, {column}");
            }
        }
        first += width;
    }
}

#[test]
fn neighbours_are_one_wide_product() {
    use DType::*;
    for (types, k) in
        [([F16, F16, F32], 128), ([BF16, BF16, F32], 64), ([TF32, TF32, F32], 64), ([F8E4M3FN, F8E5M2, F32], 256)]
    {
        for widths in [&[128, 64][..], &[64, 32], &[128, 32, 16], &[64, 16], &[16, 8], &[128, 64, 32]]
            .into_iter()
            .step_by(one_in(3))
        {
            check_wide(types, widths, true, k);
        }
    }
    for widths in [&[128, 64][..], &[64, 32], &[128, 32], &[128, 64, 32]] {
        check_wide([F16, F16, F32], widths, false, 32);
        check_wide([BF16, BF16, F32], widths, false, 128);
    }
    // Right operands that are not adjacent, or exceed the width of an instruction.
    let plan = |n, along_k| MmaPlan::new(&accelerated([F16, F16, F32], [1, 128, n, 64], 8, [true, along_k])).unwrap();
    assert!(plan(256, true).widened_by(&plan(64, true), 320).is_none());
    assert!(plan(64, true).widened_by(&plan(64, false), 64).is_none());
    assert!(plan(64, false).widened_by(&plan(32, false), 64).is_none(), "rows of other lengths");
}

const TYPES: [[DType; 3]; 9] = {
    use DType::*;
    [
        [F16, F16, F32],
        [F16, F16, F16],
        [BF16, BF16, F32],
        [TF32, TF32, F32],
        [F32, F32, F32],
        [F64, F64, F64],
        [I8, I8, I32],
        [F8E4M3FN, F8E5M2, F32],
        [F8E5M2, F8E5M2, F16],
    ]
};

const ORDERS: [[bool; 2]; 4] = [[true, false], [true, true], [false, false], [false, true]];

/// Returns all pairs of both lists; the second index is the faster one.
fn pairs<A: Clone, B: Clone>(a: &[A], b: &[B]) -> Vec<(A, B)> {
    a.iter().flat_map(|a| b.iter().map(move |b| (a.clone(), b.clone()))).collect()
}

#[test]
fn products_of_every_type_and_order() {
    let shapes = [([1, 32, 32, 64], 2), ([2, 16, 32, 16], 4), ([1, 64, 16, 32], 1)];
    for ((types, order), ((extents, num_warps), from_registers)) in
        pairs(&pairs(&TYPES, &ORDERS), &pairs(&shapes, &[false, true])).into_iter().step_by(one_in(5))
    {
        EmulatedProduct::new(request(types, extents, num_warps, order), from_registers).check();
    }
}

#[test]
fn steps_of_f64_are_carried_without_conflicts() {
    let shapes = [([1, 128, 128, 16], 8), ([1, 64, 64, 16], 4), ([1, 64, 128, 32], 4), ([1, 64, 64, 8], 4)];
    for (order, (extents, warps)) in pairs(&ORDERS, &shapes).into_iter().step_by(one_in(2)) {
        let request = request([DType::F64; 3], extents, warps, order);
        let run = EmulatedProduct::emitted(request.clone(), [false, false, false, true]);
        assert!(run.plan.describe().contains("mma.sync m16n8k"), "{}", run.plan.describe());
        assert_eq!(run.check(), 0, "no conflicts in {}", run.plan.describe());
        let old = Target { arch: 80, accelerated: false };
        let run = EmulatedProduct::new(MmaRequest { target: old, ..request }, false);
        assert!(run.plan.describe().contains("m8n8k4"), "{}", run.plan.describe());
        run.check();
    }
}

#[test]
fn steps_of_few_mmas_are_not_carried() {
    for (extents, warps) in [([1, 64, 8, 64], 8), ([1, 32, 64, 16], 4)] {
        let plan = MmaPlan::new(&request([DType::F64; 3], extents, warps, ORDERS[0])).expect("a plan");
        let mut b = Builder::new(Target::SM_90A, "product", 32 * warps as u32);
        assert!(plan.start_carried_step(&mut b).is_none(), "{}", plan.describe());
    }
}

/// Types that `wgmma` multiplies.
const WGMMA_TYPES: [[DType; 3]; 6] = {
    use DType::*;
    [
        [F16, F16, F32],
        [BF16, BF16, F32],
        [TF32, TF32, F32],
        [F8E4M3FN, F8E5M2, F32],
        [F8E5M2, F8E4M3FN, F32],
        [I8, I8, I32],
    ]
};

#[test]
fn wgmma_of_every_type_and_order() {
    let shapes = [([1, 64, 128, 64], 4), ([1, 128, 64, 32], 4), ([1, 128, 128, 64], 8), ([2, 64, 64, 64], 4)];
    for ((types, order), (extents, warps)) in
        pairs(&pairs(&WGMMA_TYPES, &ORDERS), &shapes).into_iter().step_by(one_in(7))
    {
        let request = accelerated(types, extents, warps, order);
        let run = EmulatedProduct::new(request.clone(), false);
        let plan = run.plan.describe();
        assert!(plan.contains("wgmma"), "{plan}: {request:?}");
        assert_eq!(run.check(), 0, "no conflicts in {plan}");
        EmulatedProduct::with(request, true, extents[0] == 2, false).check();
    }
}

#[test]
fn wgmma_rounds_f32_operands() {
    use DType::{F32, TF32};
    for (order, target) in ORDERS.into_iter().zip([true, true, true, false]) {
        for (extents, warps) in [([1, 64, 128, 32], 4), ([1, 256, 128, 32], 8), ([1, 128, 256, 32], 8)] {
            let mut request = accelerated([TF32, TF32, F32], extents, warps, order);
            request.target.accelerated = target;
            let run = EmulatedProduct::with(request, false, false, true);
            let ways = [&run.plan.a, &run.plan.b].map(|operand| operand.may_be_unrounded);
            let want = if target { [!order[0], order[0] && !order[1]] } else { [true; 2] };
            assert_eq!(ways, want, "{}", run.plan.describe());
            run.check();
        }
    }
}

#[test]
fn wgmma_keeps_the_outputs_rows_together() {
    // A row-major right operand of 32 bits: the transposed MMA, whose threads have four columns.
    let types = [DType::TF32, DType::TF32, DType::F32];
    for (extents, columns) in [([1, 128, 256, 32], 4), ([1, 256, 128, 32], 2)] {
        let plan = MmaPlan::new(&accelerated(types, extents, 8, [true, false])).unwrap();
        assert!(plan.describe().contains("transposed"), "{}", plan.describe());
        assert_eq!(plan.acc.vector_len(1), columns);
        assert_eq!(
            plan.b.panels,
            Some(Panels { along_k: false, swizzle_bytes: 128, rows: 32, count: extents[2] / 32 })
        );
        assert_eq!(plan.a.panels, Some(Panels { along_k: true, swizzle_bytes: 128, rows: extents[1], count: 1 }));
    }
}

#[test]
fn sums_of_small_floats_are_cut() {
    let request = accelerated([DType::F8E4M3FN, DType::F8E4M3FN, DType::F32], [1, 64, 64, 256], 4, [true, true]);
    for fast in [false, true] {
        let run = EmulatedProduct::with(MmaRequest { fast, ..request.clone() }, false, false, false);
        assert_eq!(run.plan.is_complete(), !fast);
        let adds = run
            .function
            .lines
            .iter()
            .filter(|line| matches!(line, Line::Inst(inst) if matches!(inst.op, Opcode::Float(FloatOp::Add, ..))));
        // Two chunks of 128, 32 sums per thread.
        assert_eq!(adds.count(), if fast { 0 } else { 2 * 32 });
        run.check();
    }
    EmulatedProduct::with(request, false, true, false).check();
}

#[test]
fn products_of_every_small_extent() {
    let extents = [(1, 1), (1, 64), (2, 4), (4, 8), (8, 2), (16, 1), (64, 1), (8, 16)];
    let extents = pairs(&extents, &[1, 2, 4, 8, 16]);
    for ((types, order), (i, ((m, n), k))) in
        pairs(&pairs(&TYPES, &[[true, false], [false, true]]), &extents.into_iter().enumerate().collect::<Vec<_>>())
            .into_iter()
            .step_by(one_in(7))
    {
        let run = |batch, warps, registers| {
            EmulatedProduct::new(request(types, [batch, m, n, k], warps, order), registers).check();
        };
        run(1, 1 << (i / 5 % 3), false);
        run(4, 2, k % 3 == 1);
    }
}

#[test]
fn signs_and_older_targets() {
    for signs in [[true, false], [false, true], [false, false]] {
        let mut mixed = request([DType::I8, DType::I8, DType::I32], [1, 16, 16, 64], 1, [true, true]);
        (mixed.a.signed, mixed.b.signed) = (signs[0], signs[1]);
        EmulatedProduct::new(mixed, false).check();
    }
    let mut old = request([DType::F8E4M3FN, DType::F8E4M3FN, DType::F32], [1, 16, 16, 64], 1, [true, false]);
    old.target = Target::SM_80;
    let run = EmulatedProduct::new(old, false);
    assert_eq!(run.plan.a.dtype, DType::F16);
    run.check();
}

#[test]
fn long_sums_loop() {
    for types in [[DType::F32; 3], [DType::F16, DType::F16, DType::F32], [DType::I8, DType::I8, DType::I32]] {
        for order in ORDERS {
            let run = EmulatedProduct::new(request(types, [1, 64, 64, 512], 1, order), false);
            let loops = run.function.lines.iter().any(|line| matches!(line, Line::Label(_)));
            assert!(loops || run.function.lines.len() < 2000, "{} {order:?}", run.plan.describe());
            if order == [true, true] {
                run.check();
            }
        }
    }
}

#[test]
fn operands_without_product() {
    let types = [[DType::F16, DType::BF16, DType::F32], [DType::I8, DType::I8, DType::F32], [DType::I32; 3]];
    for types in types {
        let error = MmaPlan::new(&request(types, [1, 16, 16, 16], 1, [true, true])).unwrap_err();
        assert!(error.contains(types[1].name()), "{error}");
    }
}

/// Fragments are read without bank conflicts, and coalesced registers are stored without bank
/// conflicts.
#[test]
fn shared_memory_without_conflicts() {
    for (types, order) in pairs(&TYPES, &ORDERS).into_iter().step_by(one_in(3)) {
        let run = EmulatedProduct::new(request(types, [1, 64, 64, 64], 4, order), false);
        let plan = &run.plan;
        assert_eq!(run.check(), 0, "{} {order:?}", plan.describe());
        assert!(!plan.describe().contains("Elements"), "{}", plan.describe());
        for (operand, k_axis, contiguous) in [(&plan.a, 1, order[0]), (&plan.b, 0, order[1])] {
            let fast = if contiguous { k_axis } else { 1 - k_axis };
            let bytes = operand.shared.element_bytes;
            let coalesced = Layout::blocked(&operand.shared.shape, &[fast, 1 - fast], 16 / bytes, 4);
            let side = operand.shared.accesses(&coalesced);
            assert_eq!(side.accesses[0].registers.len() * bytes, 16, "{}", plan.describe());
            assert_eq!(side.bank_conflicts(bytes), 0, "{}", plan.describe());
        }
    }
}
