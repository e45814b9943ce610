//! Kernel arguments without a device, and the contents of their trace.
#![allow(dead_code)]

use cutlet::ir::{Module, Opcode, PrintOptions};
use cutlet::kernel::{Arguments, Kernel, KernelArgs, trace_kernel};
use cutlet::prelude::*;
use cutlet::{ArraySpec, ArraySpecMut};

/// A shared array of which nothing is known but the last axis being contiguous.
pub fn input<T: Element, const R: usize>() -> ArraySpec<T, R> {
    ArraySpec::new([17; R]).unaligned()
}

/// Such an array, borrowed uniquely.
pub fn output<T: Element, const R: usize>() -> ArraySpecMut<T, R> {
    input().mutable()
}

/// Traces a kernel that is right, and has the verifier agree.
#[track_caller]
pub fn trace<K: Kernel<P>, A: KernelArgs<P>, P>(kernel: K, args: A) -> Module {
    let module = trace_kernel("kernel", &kernel, &Arguments::new(args)).unwrap_or_else(|e| panic!("{e}"));
    if let Err(problems) = cutlet::ir::verify(&module) {
        let list: Vec<String> = problems.iter().map(|d| d.to_string()).collect();
        panic!("verifier:\n{}\nin\n{}", list.join("\n"), module.to_text(PrintOptions::default()));
    }
    module
}

/// The ops of a traced kernel in program order, without those that come with its parameters and
/// end.
pub fn ops(module: &Module) -> Vec<Opcode> {
    let mut list = Vec::new();
    module.walk(module.entries[0].body, &mut |op| list.push(module.op(op).code));
    list.retain(|code| !matches!(code, Opcode::Assume | Opcode::MakeTensorView | Opcode::Return));
    list
}

/// The text of everything that is wrong with a kernel, with `path` of this test's file as `file`.
#[track_caller]
pub fn problems<K: Kernel<P>, A: KernelArgs<P>, P>(kernel: K, args: A) -> String {
    match trace_kernel("kernel", &kernel, &Arguments::new(args)) {
        Ok(module) => panic!("no problem found in\n{}", module.to_text(PrintOptions::default())),
        Err(error) => error.to_string(),
    }
}
