//! Interface of the compilation: options and result. A build without the generator has it, too.

use super::launch_conditions::{Guards, LaunchConditions};
use super::version::Version;
use crate::backend::Hints;
use crate::ir::{Elem, Module, Type};
use crate::util::collect::CollectVec as _;

/// Options of [`super::compile()`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompileOptions {
    /// Version of the bytecode; `None` is the lowest sufficient one.
    pub version: Option<Version>,
    /// Check of tile indices: by the launch or by the kernel.
    pub guards: Guards,
    /// Hints of the launch: clusters, occupancy and worker warps become hints of the entry.
    pub hints: Hints,
}

/// One parameter of a compiled kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Param {
    /// Width in bytes.
    pub bytes: u32,
    /// True for an address.
    pub pointer: bool,
}

/// A kernel as bytecode, with its interface for launches.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Compiled {
    /// Contents of the bytecode file.
    pub bytecode: Vec<u8>,
    /// The module that was written.
    pub module: Module,
    /// Name of the entry.
    pub entry: String,
    /// Parameters, in order.
    pub params: Vec<Param>,
    /// Conditions that each launch must satisfy.
    pub conditions: LaunchConditions,
}

/// Returns the parameters of the only entry of a module.
pub fn params(module: &Module) -> Vec<Param> {
    let args = module.block(module.entries[0].body).args.iter();
    let param = |ty: &Type| match ty {
        Type::Tile { elem: Elem::Num(dtype), .. } => Param { bytes: dtype.storage_bits().div_ceil(8), pointer: false },
        _ => Param { bytes: 8, pointer: true },
    };
    args.map(|&arg| param(module.ty(arg))).collect_vec()
}
