//! Tests of the rewriting on random kernels.

use super::dispatch::is_float_tile;
use super::exact;
use crate::dtype::DType;
use crate::ir::op_table::Class;
use crate::ir::{Builder, Module, Opcode, Type, verify};
use crate::pass::optimize;
use crate::pass::tests::random;
use crate::util::test_sample::one_in;

#[track_caller]
fn check(module: &Module, seed: u64) {
    verify(module).unwrap_or_else(|problems| panic!("seed {seed}: {}\n{module}", problems[0]));
}

#[test]
fn random_kernels_have_no_floats_and_keep_their_bits_through_the_passes() {
    for seed in 0..200 / one_in(5) as u64 {
        let mut module = random::kernel(seed);
        exact(&mut module).unwrap_or_else(|problems| panic!("seed {seed}: {}", problems[0]));
        check(&module, seed);
        module.walk(module.entries[0].body, &mut |id| {
            let op = module.op(id);
            assert!(op.results.iter().all(|&value| !is_float_tile(module.ty(value))), "seed {seed}: {:?}", op.code);
        });
        let expected = random::run(&module);
        let mut optimized = module.clone();
        optimize(&mut optimized);
        check(&optimized, seed);
        assert_eq!(random::run(&optimized), expected, "seed {seed}:\n{module}\n{optimized}");
    }
}

/// Ops of arrays on several GPUs add floats inside of the network.
#[test]
fn an_op_without_a_form_is_named() {
    let view = "tensor_view<64x64xf32, strides=[64,1], #cuda_tile.ptr_attr<multicast>>";
    let text = format!(
        "entry @k(%arg0: tile<ptr<f32, <multicast>>>) {{
  %zero = constant <i32: 0> : tile<i32>
  %tview = make_tensor_view %arg0, shape = [64, 64], strides = [64, 1] : tile<ptr<f32, <multicast>>> -> {view}
  %pview = make_partition_view %tview : partition_view<tile=(4x8), {view}>
  %x = constant <f32: 1.0> : tile<4x8xf32>
  %token = multimem_reduce_view_tko release device %pview, %x[%zero, %zero] inbounds = [true, true] : partition_view<tile=(4x8), {view}>, tile<4x8xf32>, tile<i32> -> token
  return
}}"
    );
    let mut module = Module::parse("k.mlir", &text).expect("a module");
    let problems = exact(&mut module).expect_err("there is no form");
    let problem = problems[0].to_string();
    assert!(problem.contains("exact mode: `multimem_reduce_view_tko`"), "{problem}");
}

/// A new float op needs an arm in `arithmetic`, for which the compiler does not ask.
#[test]
fn each_elementwise_op_of_floats_has_a_form() {
    let is_of_floats = |code: Opcode| {
        matches!(code.spec().class, Class::FloatUnary | Class::FloatBinary | Class::FloatTernary | Class::CmpF)
            || code == Opcode::PowI
    };
    let mut count = 0;
    for &code in Opcode::ALL.iter().filter(|&&code| is_of_floats(code)) {
        let mut b = Builder::new();
        b.begin_entry("k", &[]);
        let one = b.splat(DType::F32, u64::from(1f32.to_bits()), &[8]);
        let mut operands = vec![one; code.spec().operands.len()];
        if code == Opcode::PowI {
            operands[1] = b.splat(DType::I32, 2, &[8]);
        }
        let ty = b.module.intern(Type::tile(if code == Opcode::CmpF { DType::I1 } else { DType::F32 }, [8]));
        b.simple(code, &operands, vec![], ty);
        b.op(Opcode::Return, &[&[]], vec![], vec![], &[]);
        let mut module = b.module;
        exact(&mut module).unwrap_or_else(|problems| panic!("{code:?}: {}", problems[0]));
        count += 1;
    }
    assert!(count > 25, "{count} ops");
}
