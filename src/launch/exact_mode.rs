//! Selection of exact mode for all launches of a thread, or of the process.

use std::cell::Cell;
use std::sync::OnceLock;

use crate::error::{Error, Result};
use crate::util::spelling;
use crate::util::task::Scoped;

thread_local! {
    static SELECTED: Cell<bool> = const { Cell::new(false) };
}

/// Runs a function whose launches, compilations and exports on this thread are in exact mode, as
/// with [`Launch::exact`](crate::Launch::exact). The mode applies to kernels that a library
/// launches, too.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// fn sum(x: Array<f32, 1>, y: ArrayMut<f32, 1>, tile: usize) {
///     let total = ct::fold(..x.num_tiles(0, [tile]), ct::zeros([tile]), |sum, i| sum + x.load(i, [tile]));
///     y.store(0, total.sum(0).reshape([1]));
/// }
///
/// let x = ct::Device::cpu().from_fn([1000], |[i]| (i as f32).sqrt())?;
/// let of_tiles = |tile: usize| {
///     let mut y = ct::Device::cpu().zeros([1])?;
///     ct::launch(sum, 1, (&x, &mut y, Constant(tile)))?;
///     Ok::<u32, ct::Error>(y.to_vec()?[0].to_bits())
/// };
/// let [few, many] = ct::with_exact_mode(|| Ok::<_, ct::Error>([of_tiles(128)?, of_tiles(16)?]))?;
/// assert_eq!(few, many);
/// # Ok::<(), ct::Error>(())
/// ```
pub fn with_exact_mode<X>(body: impl FnOnce() -> X) -> X {
    let _scoped = Scoped::set(&SELECTED, true);
    body()
}

/// Returns true in [`with_exact_mode`].
pub(super) fn is_selected() -> bool {
    SELECTED.get()
}

/// Returns true if `CUTLET_EXACT` selects exact mode. The variable is read once.
pub(super) fn from_env() -> Result<bool> {
    static EXACT: OnceLock<std::result::Result<bool, String>> = OnceLock::new();
    let exact = EXACT.get_or_init(|| {
        spelling::check_environment();
        match std::env::var("CUTLET_EXACT").unwrap_or_default().as_str() {
            "" | "0" => Ok(false),
            "1" => Ok(true),
            other => Err(other.to_owned()),
        }
    });
    let refused = |value: &String| Error::environment("CUTLET_EXACT", value, "1 selects exact mode, 0 does not");
    exact.as_ref().copied().map_err(refused)
}
