//! Every instruction form through ptxas, constant folding, and hoisting from loops.

use super::super::emit;
use super::*;
use crate::backend::ptx::ptxas_test::assemble;

const WEAK: MemMods =
    MemMods { sem: Sem::Weak, scope: Scope::Cta, nc: false, cache: CacheHint::None, prefetch: Prefetch::None };

fn check(target: Target, b: Builder) -> String {
    let text = emit::module(target, &[], &[b.finish()]);
    assemble(target, &text);
    text
}

/// Returns c[i] = a[i] + b[i] for the threads below n.
fn vector_add(target: Target) -> Builder {
    let mut b = Builder::new(target, "vector_add", 128);
    let arrays: Vec<Operand> = (0..3).map(|_| b.param_value(Ty::U64)).collect();
    let n = b.param_value(Ty::U32);
    let (block, thread) = (b.special(Special::CtaIdX), b.special(Special::TidX));
    let i = b.mad(Ty::U32, block, 128i64, thread);
    let outside = b.setp(Cmp::Ge, Ty::U32, i, n);
    b.skip_if(outside, false, |b| {
        let addresses: Vec<Addr> = arrays.iter().map(|&base| b.mad_wide(Ty::U32, i, 4i64, base).into()).collect();
        let streaming = MemMods { nc: true, cache: CacheHint::NoAllocate, prefetch: Prefetch::B128, ..WEAK };
        let x = b.ld(Space::Global, Ty::F32, &addresses[0], streaming);
        let y = b.ld(Space::Global, Ty::F32, &addresses[1], streaming);
        let sum = b.fadd(Ty::F32, x, y);
        b.st(Space::Global, Ty::F32, &addresses[2], sum, MemMods { cache: CacheHint::Cs, ..WEAK });
    });
    b.ret();
    b
}

#[test]
fn vector_add_assembles() {
    for target in [Target::SM_80, Target::SM_90A] {
        let text = check(target, vector_add(target));
        assert!(text.contains("ld.global.nc.L1::no_allocate.L2::128B.f32"), "{text}");
    }
}

#[test]
fn constants_fold_away() {
    let mut b = Builder::new(Target::SM_80, "k", 32);
    let x: Operand = b.fresh(RegClass::B32).into();
    assert_eq!(b.add(Ty::S32, 3i64, 4i64), Operand::Imm(7));
    assert_eq!(b.add(Ty::S32, i64::from(i32::MAX), 1i64), Operand::Imm(i64::from(i32::MIN)));
    assert_eq!(b.shr(Ty::U32, -1i64, 28i64), Operand::Imm(15));
    assert_eq!(b.div(Ty::U32, -1i64, 2i64), Operand::Imm(0x7fff_ffff));
    assert_eq!(b.mul_hi(Ty::U64, -1i64, -1i64), Operand::Imm(-2));
    assert_eq!(b.shl(Ty::B32, 1i64, 40i64), Operand::Imm(0));
    assert_eq!(b.bfe(Ty::S32, 0xff0i64, 4i64, 8i64), Operand::Imm(-1));
    assert_eq!(b.bfe(Ty::U32, 0xff0i64, 4i64, 8i64), Operand::Imm(0xff));
    assert_eq!(b.and(Ty::B32, x, 0xffff_ffffi64), x);
    assert_eq!(b.mul(Ty::S32, x, 1i64), x);
    assert_eq!(b.mad(Ty::S32, x, 0i64, x), x);
    assert_eq!(b.not(Ty::Pred, true), Operand::Imm(0));
    assert_eq!(b.select(RegClass::B32, true, x, 0i64), x);
    assert_eq!(b.num_lines(), 0);
    let _ = b.mul(Ty::U32, x, 64i64);
    assert!(matches!(&b.function().lines[..], [Line::Inst(Inst { op: Opcode::Int(IntOp::Shl, Ty::B32), .. })]));
}

#[test]
fn masks_fold_into_later_instructions() {
    let mut b = Builder::new(Target::SM_80, "k", 32);
    let (x, y) = (b.fresh(RegClass::B32), b.fresh(RegClass::B32));
    let joined = |b: &mut Builder, masked: Operand| {
        let _ = b.xor(Ty::B32, masked, 0x6400i64);
        matches!(b.function().lines.last(), Some(Line::Inst(Inst { op: Opcode::Lop3(0x6a), .. })))
    };
    let masked = b.and(Ty::B32, x, 15i64);
    assert!(joined(&mut b, masked));
    assert_eq!(b.low_half_of(masked), masked);
    let whole = b.and(Ty::B32, x, 0x3_ffffi64);
    assert_eq!(b.low_half_of(whole), x.into());
    // The source has another value now.
    b.mov_to(x, y);
    assert!(!joined(&mut b, masked));
    // Other jumps may reach this line.
    let masked = b.and(Ty::B32, x, 15i64);
    let label = b.new_label();
    b.emit_label(label);
    assert!(!joined(&mut b, masked));
    // Nothing is masked if the condition is false.
    let condition = b.setp(Cmp::Lt, Ty::S32, x, 4i64);
    let masked = b.guarded(condition, false, |b| b.and(Ty::B32, x, 15i64));
    assert!(!joined(&mut b, masked));
}

#[test]
fn adjacent_bytes_remain_adjacent() {
    let mut b = Builder::new(Target::SM_90A, "k", 32);
    let bytes_of = |b: &mut Builder, word: Reg| -> Vec<Operand> {
        (0..4u32)
            .map(|number| {
                let byte = b.bfe(Ty::U32, word, 8 * number, 8u32);
                b.note_byte(byte, word.into(), number);
                byte
            })
            .collect()
    };
    let permutes = |b: &mut Builder| {
        let is_permute = |line: &&Line| matches!(line, Line::Inst(Inst { op: Opcode::Prmt, .. }));
        b.function().lines.iter().filter(is_permute).count()
    };
    let (x, y, z) = (b.fresh(RegClass::B32), b.fresh(RegClass::B32), b.fresh(RegClass::B32));
    let [first, second, third] = [x, y, z].map(|word| bytes_of(&mut b, word));
    // The whole word, and halves of two.
    assert_eq!(b.join_bytes([first[0], first[1], first[2], first[3]]), x.into());
    let _ = b.join_bytes([first[2], first[3], second[2], second[3]]);
    assert_eq!(permutes(&mut b), 1);
    let Some(Line::Inst(Inst { srcs, .. })) = b.function().lines.last() else { panic!("an instruction") };
    assert!(matches!(srcs[2], Arg::One(Operand::Imm(0x7632))), "{srcs:?}");
    // Bytes of three words, and of one whose value has changed.
    let _ = b.join_bytes([first[0], second[0], third[0], first[1]]);
    assert_eq!(permutes(&mut b), 4);
    b.mov_to(x, z);
    let _ = b.join_bytes([first[2], first[3], second[2], second[3]]);
    assert_eq!(permutes(&mut b), 7);
}

#[test]
#[should_panic(expected = "class")]
fn classes_are_checked() {
    let mut b = Builder::new(Target::SM_80, "k", 32);
    let x = b.fresh(RegClass::B64);
    b.fadd(Ty::F32, x, 1f32);
}

/// Emits integer and memory instructions of all targets; stores keep the results live.
fn general(b: &mut Builder) {
    let base = b.param_value(Ty::U64);
    let tid = b.special(Special::TidX);
    let at = |b: &mut Builder, offset: i64| b.address(base, offset);
    let addr = at(b, 16);
    let words = b.ld_vec(Space::Global, Ty::B32, 4, &addr, WEAK);
    let [x, y, z, w] = [words[0], words[1], words[2], words[3]];
    let mut results: Vec<Operand> = vec![
        b.mad(Ty::S32, x, y, z),
        b.lop3(x, y, z, 0x96),
        b.prmt(x, y, 0x5410i64),
        b.bfi(Ty::B32, x, y, 4, 8),
        b.bfe(Ty::S32, x, 3i64, 5i64),
        b.clz(Ty::B32, x),
        b.shl(Ty::B32, 1i64, x),
        b.sub(Ty::S32, 5i64, x),
        b.div(Ty::S32, x, y),
        b.rem(Ty::U32, 100i64, y),
        b.min(Ty::S32, x, -3i64),
        b.shfl(ShflMode::Bfly, x, 1i64),
        b.shfl(ShflMode::Idx, x, w),
        b.redux(ReduxOp::Max, Ty::S32, x),
    ];
    let mask = b.setp(Cmp::Lt, Ty::S32, 4i64, x);
    results.push(b.vote(VoteMode::Ballot, mask));
    results.push(b.pred_to_int(mask));
    let always = b.reg(true, RegClass::Pred);
    let any = b.vote(VoteMode::Any, always);
    let chosen = b.select(RegClass::Pred, any, mask, false);
    results.push(b.pred_to_int(chosen));
    let floats: Vec<Operand> = [x, y, z].map(|r| b.bitcast(r, RegClass::F32)).to_vec();
    let half = b.cvt(Ty::F16, Ty::F32, CvtRound::Rn, floats[0]);
    let pair = b.pack(half, half);
    results.push(b.fma(Ty::F16x2, pair, pair, 0x3c00_3c00u32));
    results.push(b.cvt_pack(Ty::BF16x2, CvtRound::Rn, floats[0], floats[1]));
    let wide = b.mul_wide(Ty::U32, x, y);
    let (lo, hi) = b.unpack(wide);
    results.extend([lo, hi]);
    for (i, &value) in (4i64..).zip(&results) {
        let addr = at(b, 16 * i);
        b.st(Space::Global, Ty::B32, &addr, value, WEAK);
    }
    memory(b, base, tid, &words);
}

fn memory(b: &mut Builder, base: Operand, tid: Operand, words: &[Reg]) {
    let offset = b.shl(Ty::B32, tid, 4i64);
    let slot = b.address(Operand::Smem, offset);
    let values: Vec<Operand> = words.iter().map(|&w| w.into()).collect();
    b.st_vec(Space::Shared, Ty::B32, &slot, &values, WEAK);
    b.bar_sync(0, None);
    let fixed = b.address(Operand::Smem, 64i64);
    let byte = b.ld(Space::Shared, Ty::U8, &fixed, WEAK);
    let half = b.ld(Space::Shared, Ty::B16, &fixed.plus(2), WEAK);
    b.st(Space::Global, Ty::U8, &base.into(), byte, WEAK);
    b.st(Space::Global, Ty::B16, &Addr::new(base, 2), half, WEAK);
    let relaxed = (Sem::Relaxed, Scope::Gpu);
    let old = b.atom(AtomOp::Add, Ty::F32, Space::Global, relaxed, &base.into(), &[1f32.into()]);
    b.red(AtomOp::Max, Ty::S32, Space::Global, relaxed, &base.into(), &[values[0]]);
    let swapped = b.atom(AtomOp::Cas, Ty::B32, Space::Global, (Sem::AcqRel, Scope::Sys), &base.into(), &values[..2]);
    b.st(Space::Global, Ty::F32, &base.into(), old, MemMods { sem: Sem::Relaxed, scope: Scope::Gpu, ..WEAK });
    b.st(Space::Global, Ty::B32, &base.into(), swapped, MemMods { sem: Sem::Volatile, ..WEAK });
    b.fence(Sem::AcqRel, Scope::Gpu);
    b.fence(Sem::Weak, Scope::Cta);
    b.cp_async(&slot, &base.into(), 16, Some(values[3]), Prefetch::B128);
    b.cp_async(&slot, &base.into(), 4, None, Prefetch::None);
    b.cp_async_commit_group();
    b.cp_async_wait_group(0);
    b.bar_warp_sync();
}

/// Emits matrix instructions; accumulators are fixed registers.
fn matrices(b: &mut Builder) {
    let row = b.address(Operand::Smem, 0i64);
    let a = b.ldmatrix(4, false, &row);
    let other = b.ldmatrix(2, true, &row.plus(512));
    let a: Vec<Operand> = a.into_iter().map(Operand::Reg).collect();
    let c: Vec<Operand> = other.into_iter().map(Operand::Reg).collect();
    let acc = b.fresh_vec(RegClass::F32, 4);
    let sums = b.fresh_vec(RegClass::B32, 4);
    for &reg in acc.iter().chain(&sums) {
        b.mov_to(reg, 0i64);
    }
    let again = b.new_label();
    let count = b.copy(4i64, RegClass::B32);
    b.emit_label(again);
    let all = |regs: &[Reg]| regs.iter().map(|&r| Operand::Reg(r)).collect::<Vec<_>>();
    let types = |t: Ty| MmaTypes { d: Ty::F32, a: t, b: t, c: Ty::F32 };
    b.mma(MmaShape { m: 16, n: 8, k: 16 }, types(Ty::BF16), &acc, &a, &c, &all(&acc));
    b.mma(MmaShape { m: 16, n: 8, k: 8 }, types(Ty::TF32), &acc, &a, &c, &all(&acc));
    let bytes = MmaTypes { d: Ty::S32, a: Ty::S8, b: Ty::U8, c: Ty::S32 };
    b.mma(MmaShape { m: 16, n: 8, k: 32 }, bytes, &sums, &a, &c, &all(&sums));
    b.int_to(count, IntOp::Sub, Ty::S32, count, 1i64);
    let more = b.setp(Cmp::Ne, Ty::S32, count, 0i64);
    b.bra_if(more, false, again, true);
    let out = b.param_value(Ty::U64);
    b.st_vec(Space::Global, Ty::F32, &out.into(), &all(&acc), WEAK);
    b.st(Space::Global, Ty::B32, &Addr::new(out, 16), sums[0], WEAK);
    b.st_vec(Space::Global, Ty::B32, &Addr::new(out, 32), &all(&sums), WEAK);
}

#[test]
fn every_form_assembles() {
    for target in [Target::SM_80, Target::SM_90A] {
        let mut b = Builder::new(target, "forms", 128);
        general(&mut b);
        matrices(&mut b);
        b.ret();
        check(target, b);
    }
}

/// The skeleton of a TMA, mbarrier and wgmma kernel.
#[test]
fn hopper_forms_assemble() {
    let target = Target::SM_90A;
    let mut b = Builder::new(target, "hopper", 128);
    b.function().min_blocks = Some(1);
    b.function().cluster = Some(2);
    let map = b.param(Param::Bytes { size: 128, align: 64 });
    let out = b.param_value(Ty::U64);
    let map = b.param_address(map);
    b.prefetch_tensormap(map);
    let (bar, data) = (b.address(Operand::Smem, 0i64), b.address(Operand::Smem, 1024i64));
    let tid = b.special(Special::TidX);
    let others = b.setp(Cmp::Ne, Ty::U32, tid, 0i64);
    b.skip_if(others, false, |b| b.mbarrier_init(&bar, 1u32));
    b.fence_mbarrier_init();
    b.cluster_wait_relaxed();
    b.skip_if(others, false, |b| {
        let policy = b.reg(0i64, RegClass::B64);
        b.mbarrier_expect_tx(&bar, 16384i64);
        b.tma_load(&data, map, &[0i64.into(), tid], &bar, LoadRoute { policy: Some(policy), ..LoadRoute::default() });
        let mask = b.reg(3i64, RegClass::B16);
        let both = LoadRoute { cluster: true, multicast: Some(mask), policy: None };
        b.tma_load(&data, map, &[0i64.into(), 0i64.into()], &bar, both);
    });
    b.mbarrier_wait(&bar, 0i64);
    let remote = b.mapa(Operand::Smem, 1i64);
    b.mbarrier_arrive(&remote.into(), true);
    b.mbarrier_arrive(&bar, false);
    let descriptor = b.reg(0x4000_0040_0001_0000i64, RegClass::B64);
    let acc = b.fresh_vec(RegClass::F32, 8);
    let types = MmaTypes { d: Ty::F32, a: Ty::BF16, b: Ty::BF16, c: Ty::F32 };
    let a = b.fresh_vec(RegClass::B32, 4);
    for &reg in &a {
        b.mov_to(reg, 0i64);
    }
    b.wgmma_fence();
    b.wgmma(16, types, &acc, &[descriptor], descriptor, 0i64.into(), (false, true));
    b.wgmma(16, types, &acc, &a, descriptor, others.into(), (false, false));
    b.wgmma_commit_group();
    b.wgmma_wait_group(0);
    let elected = b.elect();
    b.fence_proxy(ProxyFence::AsyncShared);
    b.skip_if(elected, true, |b| {
        b.tma_store(map, &[0i64.into(), tid], &data);
        b.tma_reduce(ReduxOp::Add, map, &[0i64.into(), tid], &data);
        b.bulk_commit_group();
        b.bulk_wait_group(0, true);
    });
    let sums: Vec<Operand> = acc.iter().map(|&r| r.into()).collect();
    b.red(AtomOp::Add, Ty::F32, Space::Global, (Sem::Relaxed, Scope::Gpu), &out.into(), &sums[..4]);
    let packed = b.regs(&[0i64.into(), 0i64.into()], RegClass::B32);
    b.stmatrix(true, &data, &[packed[0].into(), packed[1].into()]);
    b.bar_sync(1, Some(128));
    b.grid_dependency_wait();
    b.grid_dependency_launch();
    b.setmaxnreg(false, 40);
    b.ret();
    check(target, b);
}

#[test]
fn complements_and_negations_are_spelled_as_such() {
    let mut b = Builder::new(Target::SM_90A, "spelled", 32);
    let x = b.special(Special::TidX);
    b.xor(Ty::B32, x, -1i64);
    b.mul(Ty::S32, -1i64, x);
    let text = emit::module(Target::SM_90A, &[], &[b.finish()]);
    assert!(!text.contains("xor") && !text.contains("mul") && text.matches("not.b32").count() == 2, "{text}");
}

#[test]
fn invariants_are_hoisted() {
    let mut b = Builder::new(Target::SM_90A, "rounds", 32);
    let out = b.param_value(Ty::U64);
    let counter = b.copy(0i64, RegClass::B32);
    let head = b.new_label();
    let before = b.num_lines();
    b.emit_label(head);
    let tid = b.special(Special::TidX);
    let doubled = b.shl(Ty::B32, tid, 1i64);
    let clock = b.special(Special::Clock64);
    let moving = b.add(Ty::U32, doubled, counter);
    let last = b.copy(7i64, RegClass::B32);
    let early = b.add(Ty::U32, last, tid);
    for register in [last, counter] {
        let next = b.add(Ty::U32, register, 1i64);
        b.mov_to(register, next);
    }
    let more = b.setp(Cmp::Lt, Ty::U32, counter, 9i64);
    b.bra_if(more, false, head, true);
    b.hoist_invariants(before, Invariants::All);
    for value in [moving, early] {
        b.st(Space::Global, Ty::U32, &out.into(), value, MemMods::default());
    }
    b.st(Space::Global, Ty::U64, &out.into(), clock, MemMods::default());
    b.ret();
    let text = emit::module(Target::SM_90A, &[], &[b.finish()]);
    let (before, inside) = text.split_once("$L0:\n").unwrap();
    let inside = &inside[..inside.find("bra").unwrap()];
    assert!(before.contains("%tid.x") && before.contains("shl.b32"), "{text}");
    // The clock and the counter change, and so does the sum with the counter; `last` is written
    // twice.
    assert!(inside.contains("%clock64") && inside.matches("add.u32").count() == 4, "{text}");
    assert_eq!(inside.matches("mov.b32").count(), 3, "{text}");
}

#[test]
fn long_chains_of_thread_values_precede_the_loop() {
    let mut b = Builder::new(Target::SM_90A, "chains", 32);
    let out = b.param_value(Ty::U64);
    let (block, counter) = (b.special(Special::CtaIdX), b.copy(0i64, RegClass::B32));
    let head = b.new_label();
    let before = b.num_lines();
    b.emit_label(head);
    let tid = b.special(Special::TidX);
    let low = b.and(Ty::B32, tid, 7i64);
    let long = b.shl(Ty::B32, low, 3i64);
    let near = b.xor(Ty::B32, long, 16i64);
    let nearer = b.xor(Ty::B32, near, 48i64);
    let of_block = b.shl(Ty::B32, block, 2i64);
    let of_block = b.xor(Ty::B32, of_block, 5i64);
    let of_block = b.and(Ty::B32, of_block, 31i64);
    let moving = b.add(Ty::U32, long, counter);
    for value in [nearer, of_block, moving] {
        b.st(Space::Global, Ty::U32, &out.into(), value, MemMods::default());
    }
    let next = b.add(Ty::U32, counter, 1i64);
    b.mov_to(counter, next);
    let more = b.setp(Cmp::Lt, Ty::U32, counter, 9i64);
    b.bra_if(more, false, head, true);
    b.hoist_invariants(before, Invariants::FromThreadIndex);
    b.ret();
    let text = emit::module(Target::SM_90A, &[], &[b.finish()]);
    let (before, inside) = text.split_once("$L0:\n").unwrap();
    for moved in ["%tid.x", ", 7;", ", 3;"] {
        assert!(before.contains(moved) && !inside.contains(moved), "{moved}: {text}");
    }
    // Two instructions after an available value do not justify hoisting, nor do values that depend
    // on the CTA alone.
    for stays in [", 16;", ", 48;", ", 2;", ", 5;", ", 31;"] {
        assert!(!before.contains(stays) && inside.contains(stays), "{stays}: {text}");
    }
}
