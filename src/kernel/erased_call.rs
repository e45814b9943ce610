//! A kernel and its arguments with erased types, so that the code of a launch is compiled once and
//! not for every kernel.

use std::any::TypeId;
use std::panic::Location;
use std::slice::Iter;

use super::arg_signature::ArgSignature;
use super::kernel_arg::{Arguments, IntoKernelArg};
use super::kernel_fn::{Kernel, entry_name};
use super::launch_arg::{LaunchArg, StoredConstant};
use super::word_buffer::WordBuffer;
use crate::backend::ParamWord;
use crate::error::Result;
use crate::ir::Module;
use crate::runtime::{Device, MemoryUse};
use crate::tile::{Tracer, trace_into_module};

/// The methods of [`LaunchArg`], for arguments of any types.
pub trait AnyArgs {
    /// Makes the arrays that the launch returns.
    fn make(&self, device: Option<Device>) -> Result<()>;
    /// Appends the properties that the code depends on.
    fn key(&self, key: &mut WordBuffer);
    /// Appends the constants that the code depends on.
    fn store_constants(&self, out: &mut Vec<StoredConstant>);
    /// Returns true if the constants are equal to the stored ones.
    fn same_constants(&self, stored: &mut Iter<'_, StoredConstant>) -> bool;
    /// Appends the signature of each argument.
    fn forms(&self, out: &mut Vec<ArgSignature>);
    /// Visits the memory that the kernel uses.
    fn memory(&self, visit: &mut dyn FnMut(MemoryUse<'_>));
    /// Passes the words of the parameters to `params`.
    fn pack(&self, params: &mut dyn FnMut(ParamWord));
}

impl<A: LaunchArg> AnyArgs for A {
    fn make(&self, device: Option<Device>) -> Result<()> {
        LaunchArg::make(self, device)
    }
    fn key(&self, key: &mut WordBuffer) {
        LaunchArg::key(self, key);
    }
    fn store_constants(&self, out: &mut Vec<StoredConstant>) {
        LaunchArg::store_constants(self, out);
    }
    fn same_constants(&self, stored: &mut Iter<'_, StoredConstant>) -> bool {
        LaunchArg::same_constants(self, stored)
    }
    fn forms(&self, out: &mut Vec<ArgSignature>) {
        LaunchArg::forms(self, out);
    }
    fn memory(&self, visit: &mut dyn FnMut(MemoryUse<'_>)) {
        LaunchArg::memory(self, visit);
    }
    fn pack(&self, params: &mut dyn FnMut(ParamWord)) {
        LaunchArg::pack(self, params);
    }
}

/// A kernel with the arguments that it is traced with.
///
/// Invariant: every [`Call`] is made by [`Bound::call`], so a launch passes the words of the
/// arguments to code that was traced with the parameters of the same arguments.
pub struct Bound<'a, K, A: IntoKernelArg<P>, P> {
    kernel: &'a K,
    args: &'a Arguments<A, P>,
}

impl<'a, K: Kernel<P>, A: IntoKernelArg<P>, P> Bound<'a, K, A, P> {
    /// Binds a kernel to arguments.
    #[inline]
    pub fn new(kernel: &'a K, args: &'a Arguments<A, P>) -> Bound<'a, K, A, P> {
        Bound { kernel, args }
    }

    /// Returns the call with erased types.
    #[inline]
    #[track_caller]
    pub fn call(&self) -> Call<'_> {
        let identity = (size_of::<K>() == 0).then(Arguments::<A, P>::identity::<K>);
        let (path, place) = (std::any::type_name::<K>(), Location::caller());
        Call { path, place, identity, args: self.args.given(), body: self }
    }
}

/// The execution of a [`Bound`] kernel.
trait Body {
    /// Calls the kernel with its traced arguments.
    fn run(&self, tracer: &mut Tracer);
}

impl<K: Kernel<P>, A: IntoKernelArg<P>, P> Body for Bound<'_, K, A, P> {
    fn run(&self, tracer: &mut Tracer) {
        self.kernel.call(self.args.trace(tracer));
    }
}

/// A kernel and its arguments with erased types, made by [`Bound::call`].
#[derive(Clone, Copy)]
pub struct Call<'a> {
    /// The path of the kernel's type.
    path: &'static str,
    /// The call of the library.
    place: &'static Location<'static>,
    /// The type of a kernel of size zero, together with the types of the parameters.
    identity: Option<TypeId>,
    args: &'a dyn AnyArgs,
    /// Invariant: declares the parameters of `args`, in the order in which `args` packs their
    /// words.
    body: &'a dyn Body,
}

impl<'a> Call<'a> {
    /// Returns the arguments.
    #[inline]
    pub fn args(&self) -> &'a dyn AnyArgs {
        self.args
    }

    /// Returns the identity of the compiled code, apart from the words and constants of a key.
    /// Function items and closures without captures have one. The contents of any other kernel
    /// value are known only by its trace.
    #[inline]
    pub fn identity(&self) -> Option<TypeId> {
        self.identity
    }

    /// Returns the name of the kernel for messages, dumps and entries.
    pub fn name(&self) -> String {
        entry_name(self.path, self.place)
    }

    /// Runs the kernel once: see [`trace_kernel`](super::trace_kernel).
    ///
    /// # Errors
    /// The errors of [`trace_kernel`](super::trace_kernel).
    #[track_caller]
    pub fn trace(&self, name: &str) -> Result<Module> {
        trace_into_module(name, Location::caller(), &|tracer| self.body.run(tracer))
    }
}
