//! Kernel arguments without a device, and what their trace holds.
#![allow(dead_code)]

use std::marker::PhantomData;

use cutlet::backend::ParamWord;
use cutlet::ir::{Module, Opcode, PrintOptions};
use cutlet::kernel::{ArrayFacts, Kernel, LaunchArg, LaunchArgs, WordWriter, trace_kernel};
use cutlet::prelude::*;
use cutlet::tile::Tracer;

/// Stands for a shared device array.
pub struct In<T, const R: usize>(pub ArrayFacts, PhantomData<T>);
/// Stands for a device array borrowed uniquely.
pub struct Out<T, const R: usize>(pub ArrayFacts, PhantomData<T>);

/// Nothing known but the last axis being contiguous.
pub fn plain(rank: usize) -> ArrayFacts {
    ArrayFacts { unit_stride: 1 << (rank - 1), ..Default::default() }
}

pub fn input<T, const R: usize>() -> In<T, R> {
    In(plain(R), PhantomData)
}
pub fn output<T, const R: usize>() -> Out<T, R> {
    Out(plain(R), PhantomData)
}
pub fn input_with<T, const R: usize>(facts: ArrayFacts) -> In<T, R> {
    In(facts, PhantomData)
}

impl<T: Element, const R: usize> LaunchArg for In<T, R> {
    type Traced = Array<T, R>;
    fn key(&self, _key: &mut WordWriter) {}
    fn trace(&self, tracer: &mut Tracer) -> Array<T, R> {
        tracer.array(self.0)
    }
    fn pack(&self, _params: &mut dyn FnMut(ParamWord)) {}
}

impl<T: Element, const R: usize> LaunchArg for Out<T, R> {
    type Traced = ArrayMut<T, R>;
    fn key(&self, _key: &mut WordWriter) {}
    fn trace(&self, tracer: &mut Tracer) -> ArrayMut<T, R> {
        tracer.array_mut(self.0)
    }
    fn pack(&self, _params: &mut dyn FnMut(ParamWord)) {}
}

/// Traces a kernel that is right, and has the verifier agree.
#[track_caller]
pub fn trace<K: Kernel<A::Traced>, A: LaunchArgs>(kernel: K, args: A) -> Module {
    let module = trace_kernel("kernel", &kernel, &args).unwrap_or_else(|e| panic!("{e}"));
    if let Err(problems) = cutlet::ir::verify(&module) {
        let list: Vec<String> = problems.iter().map(|d| d.to_string()).collect();
        panic!("verifier:\n{}\nin\n{}", list.join("\n"), module.to_text(PrintOptions::default()));
    }
    module
}

/// The ops of a traced kernel in program order, without those that come with its parameters and end.
pub fn ops(module: &Module) -> Vec<Opcode> {
    let mut list = Vec::new();
    module.walk(module.entries[0].body, &mut |op| list.push(module.op(op).code));
    list.retain(|code| !matches!(code, Opcode::Assume | Opcode::MakeTensorView | Opcode::Return));
    list
}

/// The text of everything that is wrong with a kernel, with `path` of this test's file as `file`.
#[track_caller]
pub fn problems<K: Kernel<A::Traced>, A: LaunchArgs>(kernel: K, args: A) -> String {
    match trace_kernel("kernel", &kernel, &args) {
        Ok(module) => panic!("no problem found in\n{}", module.to_text(PrintOptions::default())),
        Err(error) => error.to_string(),
    }
}
