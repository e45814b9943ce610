//! Launches of generated kernels, which tests of this room also see.

use crate::error::Result;
use crate::kernel::{Arguments, ArrivesAs, Kernel};
use crate::launch::call::launch;
use crate::launch::grid::Grid;

/// As [`launch`].
#[track_caller]
pub fn launched<K, A, P>(kernel: K, grid: impl Into<Grid>, args: A) -> Result<()>
where
    K: Kernel<P>,
    A: ArrivesAs<P>,
{
    let args = Arguments::of(args);
    #[cfg(test)]
    seen::add(&kernel, &args)?;
    launch(kernel, grid, args)
}

#[cfg(test)]
pub mod seen {
    //! What the kernels of this thread came to.

    use std::cell::RefCell;

    use crate::backend::Hints;
    use crate::error::Result;
    use crate::kernel::{Arguments, ArrivesAs, Call, Kernel, body};
    use crate::launch::code::traced;
    use crate::launch::ptx::generate;
    use crate::target::Target;

    thread_local! {
        static CODE: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    }

    pub fn add<K: Kernel<P>, A: ArrivesAs<P>, P>(kernel: &K, args: &Arguments<A, P>) -> Result<()> {
        for target in ["sm_80", "sm_90a"] {
            let target: Target = target.parse().expect("a target");
            let text =
                generate(&traced(&Call::of(kernel, args, &body(kernel, args)))?.0, target, Hints::default(), true)?
                    .text;
            CODE.with_borrow_mut(|code| code.push(text));
        }
        Ok(())
    }

    /// PTX, for two targets each.
    pub fn take() -> Vec<String> {
        CODE.take()
    }
}
