//! Pass manager: executes each pass under its name, verifies its result, and records its input and
//! output for tests (MLIR `verify-each` and `PassInstrumentation`).
//!
//! It determines no order. The head of `backend/ptx/compile.rs` lists all passes in order; those of
//! the tileir back end are in `backend/tileir/compile.rs`.
//!
//! The switch [`verifies_each`] is on in builds for the tests of this repository.
//! `CUTLET_VERIFY_EACH` overrides it.

use crate::util::collect::CollectVec as _;
use std::sync::OnceLock;

use crate::ir::{Module, verify};

/// Returns true if the module is verified after each pass.
fn verifies_each() -> bool {
    static SWITCH: OnceLock<bool> = OnceLock::new();
    *SWITCH.get_or_init(|| match std::env::var("CUTLET_VERIFY_EACH") {
        Ok(value) if !value.is_empty() => value != "0",
        _ => cfg!(any(test, feature = "_suite")),
    })
}

/// Runs a pass that changes the module.
///
/// # Panics
/// The result does not verify, where [`verifies_each`] is true. The message names the pass.
#[track_caller]
pub(crate) fn apply<T>(name: &'static str, module: &mut Module, pass: impl FnOnce(&mut Module) -> T) -> T {
    #[cfg(any(test, feature = "_suite"))]
    let before = recorder::is_active().then(|| module.clone());
    let result = pass(module);
    #[cfg(any(test, feature = "_suite"))]
    if let Some(before) = before {
        recorder::record(name, before, module);
    }
    verify_after(name, module);
    result
}

/// Runs a pass that returns the changed module, or `None` if it changes nothing.
///
/// # Panics
/// As [`apply`].
#[track_caller]
pub(crate) fn rewrite(
    name: &'static str,
    module: &Module,
    pass: impl FnOnce(&Module) -> Option<Module>,
) -> Option<Module> {
    let result: Result<_, ()> = try_rewrite(name, module, |module| Ok(pass(module)));
    result.unwrap_or_default()
}

/// Runs a pass like [`rewrite`] that may reject the module.
///
/// # Errors
/// Those of the pass.
///
/// # Panics
/// As [`apply`].
#[track_caller]
pub(crate) fn try_rewrite<E>(
    name: &'static str,
    module: &Module,
    pass: impl FnOnce(&Module) -> Result<Option<Module>, E>,
) -> Result<Option<Module>, E> {
    #[allow(unused_mut, reason = "a recorder may change the result")]
    let Some(mut changed) = pass(module)? else { return Ok(None) };
    #[cfg(any(test, feature = "_suite"))]
    if recorder::is_active() {
        recorder::record(name, module.clone(), &mut changed);
    }
    verify_after(name, &changed);
    Ok(Some(changed))
}

/// Runs a pass like [`apply`] that may reject the module.
///
/// # Errors
/// Those of the pass. The module is then unspecified.
///
/// # Panics
/// As [`apply`].
#[track_caller]
pub(crate) fn try_apply<E>(
    name: &'static str,
    module: &mut Module,
    pass: impl FnOnce(&mut Module) -> Result<(), E>,
) -> Result<(), E> {
    #[cfg(any(test, feature = "_suite"))]
    let before = recorder::is_active().then(|| module.clone());
    pass(module)?;
    #[cfg(any(test, feature = "_suite"))]
    if let Some(before) = before {
        recorder::record(name, before, module);
    }
    verify_after(name, module);
    Ok(())
}

/// Verifies the result of a pass.
#[track_caller]
fn verify_after(name: &str, module: &Module) {
    if !verifies_each() {
        return;
    }
    if let Err(problems) = verify(module) {
        let problems: Vec<String> = problems.iter().map(ToString::to_string).collect_vec();
        panic!("internal error: pass `{name}` made an invalid module; please report it: {}", problems.join("\n"));
    }
}

/// Names of all passes, in alphabetical order. Tests plant a fault in each of them.
#[cfg(any(test, feature = "_suite"))]
pub const NAMES: &[&str] = &[
    "assume_to_assert",
    "atomic_16bit",
    "canonicalize",
    "cse",
    "data_partition",
    "dce",
    "drop_assumptions",
    "drop_layouts",
    "drop_loop_hints",
    "exact",
    "expand_bit_reverse",
    "expand_gather",
    "expand_inline_ptx",
    "expand_ordered_reductions",
    "expand_scaled_mma",
    "fold_int_range",
    "guard_bounds",
    "hoist_factor",
    "legalize_arithmetic",
    "legalize_assertions",
    "legalize_padding",
    "licm",
    "no_wrap",
    "order_memory",
    "persistent",
    "pipeline_dependent_mma",
    "positive_extents",
    "read_tf32_as_f32",
    "record_accesses",
    "record_writes",
    "register_operands",
    "relax_floats",
    "relax_memory_order",
    "rematerialize",
    "remove_proved_checks",
    "saturate",
    "select_to_branch",
    "sink_loads",
    "split_extents",
    "split_loops",
    "strip_inline_ptx_semantics",
    "thread_local_reduction",
    "version_overlap",
    "widen_loops",
];

#[cfg(any(test, feature = "_suite"))]
pub use recorder::{Fault, PassRun, record_passes};

/// Recorder of pass executions of a thread.
#[cfg(any(test, feature = "_suite"))]
mod recorder {
    use std::cell::RefCell;

    use crate::ir::Module;

    /// Execution of a pass.
    #[derive(Clone, Debug)]
    pub struct PassRun {
        /// Name of the pass.
        pub name: &'static str,
        /// Module before the pass.
        pub before: Module,
        /// Module after the pass.
        pub after: Module,
    }

    /// Planted fault of a pass.
    #[derive(Clone, Copy, Debug)]
    pub struct Fault {
        /// Name of the pass.
        pub pass: &'static str,
        /// Function that changes the result of the pass, by the modules before and after it.
        pub plant: fn(&Module, &mut Module),
    }

    struct Recording {
        fault: Option<Fault>,
        runs: Vec<PassRun>,
    }

    thread_local! {
        static RECORDING: RefCell<Option<Recording>> = const { RefCell::new(None) };
    }

    /// Ends the recording, also if the recorded function panics.
    struct Ended;

    impl Drop for Ended {
        fn drop(&mut self) {
            RECORDING.with_borrow_mut(Option::take);
        }
    }

    /// Runs a function, and returns its result and the passes that it has executed on this thread.
    /// A `fault` changes the results of its pass. Recordings are not nested.
    pub fn record_passes<T>(fault: Option<Fault>, work: impl FnOnce() -> T) -> (T, Vec<PassRun>) {
        RECORDING.set(Some(Recording { fault, runs: Vec::new() }));
        let ended = Ended;
        let result = work();
        let runs = RECORDING.with_borrow_mut(|recording| recording.take().map(|recording| recording.runs));
        drop(ended);
        (result, runs.unwrap_or_default())
    }

    /// Returns true if the passes of this thread are recorded. Destructors of thread-locals may
    /// compile.
    pub fn is_active() -> bool {
        RECORDING.try_with(|recording| recording.borrow().is_some()).unwrap_or(false)
    }

    /// Plants the fault of the pass, if there is one, and records the pass.
    ///
    /// # Panics
    /// The pass is not in the list of names.
    pub fn record(name: &'static str, before: Module, after: &mut Module) {
        assert!(super::NAMES.contains(&name), "pass `{name}` is missing in the list of passes");
        let fault = RECORDING.with_borrow(|recording| recording.as_ref().and_then(|recording| recording.fault));
        if let Some(fault) = fault.filter(|fault| fault.pass == name) {
            (fault.plant)(&before, after);
        }
        RECORDING.with_borrow_mut(|recording| {
            let runs = recording.iter_mut().map(|recording| &mut recording.runs);
            runs.for_each(|runs| runs.push(PassRun { name, before: before.clone(), after: after.clone() }));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pass::{optimize, tests::random};

    #[test]
    fn passes_are_recorded_in_their_order() {
        let mut module = random::kernel(1);
        let first = module.to_string();
        let ((), runs) = record_passes(None, || optimize(&mut module));
        let names: Vec<&str> = runs.iter().map(|run| run.name).collect();
        assert_eq!(names, crate::pass::PIPELINE.iter().map(|pass| pass.name).collect::<Vec<_>>());
        assert_eq!(runs[0].before.to_string(), first);
        assert!(runs.windows(2).all(|pair| pair[0].after.to_string() == pair[1].before.to_string()));
        assert_eq!(runs[runs.len() - 1].after.to_string(), module.to_string());
        optimize(&mut module);
        assert!(!recorder::is_active());
    }

    #[test]
    #[should_panic(expected = "pass `licm` made an invalid module")]
    fn the_pass_that_breaks_a_module_is_named() {
        let plant = |_: &Module, after: &mut Module| {
            let body = after.entries[0].body;
            after.block_mut(body).ops.pop();
        };
        let mut module = random::kernel(1);
        record_passes(Some(Fault { pass: "licm", plant }), || optimize(&mut module));
    }
}
