//! Launches of generated kernels, which tests can observe.

use crate::error::Result;
use crate::kernel::{Arguments, Kernel, KernelArgs};
use crate::launch::grid::IntoGrid;
use crate::launch::launch::launch;

/// Executes [`launch`](fn@launch).
#[track_caller]
pub fn launched<K, A, P>(kernel: K, grid: impl IntoGrid, args: A) -> Result<()>
where
    K: Kernel<P>,
    A: KernelArgs<P>,
{
    let args = Arguments::new(args);
    #[cfg(test)]
    seen::add(&kernel, &args)?;
    #[cfg(test)]
    if seen::through_tile_ir() {
        return seen::interpret(&kernel, grid.into_grid(), &args);
    }
    launch(kernel, grid, args)
}

#[cfg(test)]
pub mod seen {
    //! Code of the kernels of this thread.

    use std::cell::{Cell, RefCell};

    use crate::backend::Hints;
    use crate::backend::cpu::{Memory, Program, RunOptions};
    use crate::backend::tileir::{self, CompileOptions, Guards};
    use crate::error::Result;
    use crate::kernel::{Arguments, Bound, Kernel, KernelArgs, LaunchArg};
    use crate::launch::compile::ptx::{TensorMapUse, generate};
    use crate::launch::grid::Grid;
    use crate::launch::inspect::text::traced;
    use crate::runtime::Device;
    use crate::target::Target;

    thread_local! {
        static THROUGH_TILE_IR: Cell<bool> = const { Cell::new(false) };
        static CODE: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    }

    pub fn add<K: Kernel<P>, A: KernelArgs<P>, P>(kernel: &K, args: &Arguments<A, P>) -> Result<()> {
        for target in ["sm_80", "sm_90a"] {
            let target: Target = target.parse().expect("a target");
            let module = traced(&Bound::new(kernel, args).call())?.0;
            let text = generate(&module, target, Hints::default(), TensorMapUse::Allowed)?.text;
            CODE.with_borrow_mut(|code| code.push(text));
        }
        Ok(())
    }

    pub fn through_tile_ir() -> bool {
        THROUGH_TILE_IR.get()
    }

    /// Executes the launches of `work` by their Tile IR, on the cpu back end.
    pub fn by_tile_ir<X>(work: impl FnOnce() -> X) -> X {
        THROUGH_TILE_IR.set(true);
        let result = work();
        THROUGH_TILE_IR.set(false);
        result
    }

    /// Interprets the decoded bytecode of a kernel.
    pub fn interpret<K: Kernel<P>, A: KernelArgs<P>, P>(kernel: &K, grid: Grid, args: &Arguments<A, P>) -> Result<()> {
        let module = traced(&Bound::new(kernel, args).call())?.0;
        let options = CompileOptions { version: None, guards: Guards::Kernel, hints: Hints::default() };
        let code = tileir::compile(&module, "sm_90".parse().expect("a target"), &options)?;
        let given = args.given();
        given.make(Some(Device::cpu()))?;
        let (mut words, mut memory) = (Vec::new(), Memory::new());
        given.pack(&mut |word| words.push(word));
        given.memory(&mut |used| {
            let start = std::ptr::with_exposed_provenance_mut(used.memory.address() as usize);
            // SAFETY: the arguments own or borrow the memory until after the launch, and no other
            // work accesses it.
            unsafe { memory.add(start, used.memory.len().next_multiple_of(4), used.writes) };
        });
        let blocks = grid.extents().map(|n| n as u32);
        Program::compile(&tileir::read(&code.bytecode)?)?.run(blocks, &words, &memory, &RunOptions::default())
    }

    /// Returns the PTX of each kernel for two targets.
    pub fn take() -> Vec<String> {
        CODE.take()
    }
}
