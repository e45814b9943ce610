//! The code of a kernel as text, without running it and without a device.

use super::choices::Launch;
use super::compile::{Form, optimise, optimise_watched};
use super::hints::check_hints;
use super::ptx::{Maps, full_schedule, generate, picture, schedule};
use super::remarks;
use super::require::Requirements;
use crate::error::Result;
use crate::ir::{Module, PrintOptions};
use crate::kernel::{Arguments, ArrivesAs, Bound, Call, Kernel};
use crate::runtime::Backend;
use crate::target::Target;

/// The Tile IR of a kernel after the passes, as text.
///
/// `args` are the arguments of a launch; [`crate::ArraySpec`] stands for arrays that do not exist.
///
/// ```
/// use cutlet as ct;
///
/// fn copy(x: ct::Array<f32, 1>, y: ct::ArrayMut<f32, 1>) {
///     y.store([ct::bid(0)], x.load([ct::bid(0)], [128]));
/// }
///
/// let x = ct::ArraySpec::<f32, 1>::new([1 << 20]);
/// let text = ct::code_ir(copy, (x, x.mutable()))?;
/// assert!(text.contains("load_view_tko"));
/// # Ok::<(), ct::Error>(())
/// ```
///
/// # Errors
/// [`crate::Error::Kernel`] with everything that is wrong in the kernel.
///
/// # Panics
/// When the kernel panics while it is traced.
#[track_caller]
pub fn code_ir<K, A, P>(kernel: K, args: A) -> Result<String>
where
    K: Kernel<P>,
    A: ArrivesAs<P>,
{
    let args = Arguments::of(args);
    Ok(traced(&Bound::new(&kernel, &args).call())?.0.to_text(PrintOptions::default()))
}

/// The Tile IR of a kernel as it was traced (`trace`), and after each pass that changed it, with the name of the pass.
/// Values keep their names from one to the next, so that a comparison of two texts shows what a pass did.
///
/// ```
/// use cutlet as ct;
///
/// fn kernel(x: ct::ArrayMut<f32, 1>) {
///     let y = x.load(0, [64]);
///     x.store(0, y * y + y * y); // one product, which the pass for common subexpressions finds
/// }
///
/// let x = ct::ArraySpec::<f32, 1>::new([64]).mutable();
/// let forms = ct::code_passes(kernel, (x,))?;
/// let products = |name: &str| {
///     let (_, text) = forms.iter().find(|(pass, _)| *pass == name).unwrap();
///     text.matches("mulf").count()
/// };
/// assert_eq!((products("trace"), products("cse")), (2, 1));
/// # Ok::<(), ct::Error>(())
/// ```
///
/// # Errors
/// As [`code_ir`].
///
/// # Panics
/// When the kernel panics while it is traced.
#[track_caller]
pub fn code_passes<K, A, P>(kernel: K, args: A) -> Result<Vec<(&'static str, String)>>
where
    K: Kernel<P>,
    A: ArrivesAs<P>,
{
    let args = Arguments::of(args);
    passes_of(&Bound::new(&kernel, &args).call())
}

#[track_caller]
fn passes_of(call: &Call<'_>) -> Result<Vec<(&'static str, String)>> {
    let name = call.name();
    let mut forms: Vec<(&'static str, String)> = Vec::new();
    let trace = call.trace(&name)?;
    optimise_watched(&name, trace, Form::Plain, &mut |pass, module| {
        let text = module.to_text(PrintOptions::with_stable_names());
        if forms.last().is_none_or(|(_, before)| *before != text) {
            forms.push((pass, text));
        }
    })?;
    Ok(forms)
}

/// The PTX of a kernel for a target; arguments as for [`code_ir`].
///
/// ```
/// use cutlet as ct;
///
/// fn copy(x: ct::Array<f32, 1>, y: ct::ArrayMut<f32, 1>) {
///     y.store([ct::bid(0)], x.load([ct::bid(0)], [128]));
/// }
///
/// let x = ct::ArraySpec::<f32, 1>::new([1 << 20]);
/// let text = ct::code_ptx(copy, (x, x.mutable()), ct::Target::SM_90A)?;
/// assert!(text.contains(".target sm_90a"));
/// # Ok::<(), ct::Error>(())
/// ```
///
/// # Errors
/// [`crate::Error::Kernel`] with everything that is wrong in the kernel, [`crate::Error::Unsupported`]
/// with everything that the target cannot run.
///
/// # Panics
/// When the kernel panics while it is traced.
#[track_caller]
pub fn code_ptx<K, A, P>(kernel: K, args: A, target: Target) -> Result<String>
where
    K: Kernel<P>,
    A: ArrivesAs<P>,
{
    Launch::new(1).code_ptx(kernel, args, target)
}

/// The schedule of a kernel for a target: the steps of each warp role before they become PTX (`docs/schedule.md`).
///
/// A header names the warps, the pipelines, and the user's line of each load, matrix product and store. Values without
/// instructions of their own are left out; [`Launch::code_full_schedule`] has them. The text is for people and may change.
/// Arguments as for [`code_ir`].
///
/// ```
/// use cutlet as ct;
///
/// fn double(x: ct::Array<f32, 1>, y: ct::ArrayMut<f32, 1>) {
///     y.store([ct::bid(0)], x.load([ct::bid(0)], [1 << 14]) * 2.0);
/// }
///
/// let x = ct::ArraySpec::<f32, 1>::new([1 << 20]);
/// let text = ct::code_schedule(double, (x, x.mutable()), ct::Target::SM_90A)?;
/// assert!(text.starts_with("# kernel double, sm_90a"), "{text}");
/// // Large tiles are computed a few registers at a time.
/// assert!(text.contains("strip_mine L0, 8 registers per iteration"), "{text}");
/// # Ok::<(), ct::Error>(())
/// ```
///
/// # Errors
/// As [`code_ptx`].
///
/// # Panics
/// As [`code_ptx`].
#[track_caller]
pub fn code_schedule<K, A, P>(kernel: K, args: A, target: Target) -> Result<String>
where
    K: Kernel<P>,
    A: ArrivesAs<P>,
{
    Launch::new(1).code_schedule(kernel, args, target)
}

/// [`code_schedule`] as a picture, the text of an SVG file: a lane for each group of warps and for each unit of a multiprocessor,
/// with what is done when, in cycles, by a simple model of what steps cost. One steady iteration of the innermost loop with
/// products is drawn, or the whole tile block where there is none; waits are hatched. Nothing is measured. Arguments as for
/// [`code_ir`].
///
/// ```
/// use cutlet as ct;
///
/// fn double(x: ct::Array<f32, 1>, y: ct::ArrayMut<f32, 1>) {
///     y.store([ct::bid(0)], x.load([ct::bid(0)], [1024]) * 2.0);
/// }
///
/// let x = ct::ArraySpec::<f32, 1>::new([1 << 20]);
/// let picture = ct::code_picture(double, (x, x.mutable()), ct::Target::SM_90A)?;
/// assert!(picture.starts_with("<svg") && picture.contains("store_view"));
/// # Ok::<(), ct::Error>(())
/// ```
///
/// # Errors
/// As [`code_ptx`].
///
/// # Panics
/// As [`code_ptx`].
#[track_caller]
pub fn code_picture<K, A, P>(kernel: K, args: A, target: Target) -> Result<String>
where
    K: Kernel<P>,
    A: ArrivesAs<P>,
{
    Launch::new(1).code_picture(kernel, args, target)
}

impl Launch<'_> {
    /// [`code_picture`] with the hints of this launch. Its grid does not matter.
    ///
    /// # Errors
    /// As [`code_ptx`].
    ///
    /// # Panics
    /// As [`code_ptx`].
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// let x = ct::ArraySpec::<f32, 1>::new([1 << 20]);
    /// let hints = ct::Hints::new().num_warps(8).occupancy(2);
    /// let double = |x: ArrayMut<f32, 1>| x.store(ct::bid(0), x.load(ct::bid(0), [1024]) * 2.0);
    /// let picture = ct::Launch::new(1).hints(hints).code_picture(double, (x.mutable(),), ct::Target::SM_80)?;
    /// assert!(picture.contains("block 1, all")); // two share a multiprocessor
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    pub fn code_picture<K, A, P>(&self, kernel: K, args: A, target: Target) -> Result<String>
    where
        K: Kernel<P>,
        A: ArrivesAs<P>,
    {
        let args = Arguments::of(args);
        self.picture_of(&Bound::new(&kernel, &args).call(), target)
    }

    #[track_caller]
    fn picture_of(&self, call: &Call<'_>, target: Target) -> Result<String> {
        check_hints(self.hints)?;
        let form = Form::of(Backend::Ptx, self.checks_on(Backend::Ptx)?.bounds);
        picture(&call.name(), &traced_as(call, form)?.0, target, self.hints, true)
    }

    /// [`code_schedule`] with the hints of this launch. Its grid does not matter.
    ///
    /// # Errors
    /// As [`code_ptx`].
    ///
    /// # Panics
    /// As [`code_ptx`].
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// let x = ct::ArraySpec::<f32, 1>::new([1 << 20]);
    /// let hints = ct::Hints::new().num_warps(8);
    /// let double = |x: ArrayMut<f32, 1>| x.store(ct::bid(0), x.load(ct::bid(0), [1024]) * 2.0);
    /// let text = ct::Launch::new(1).hints(hints).code_schedule(double, (x.mutable(),), ct::Target::SM_80)?;
    /// assert!(text.contains("partition all: warps 0..8"), "{text}");
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    pub fn code_schedule<K, A, P>(&self, kernel: K, args: A, target: Target) -> Result<String>
    where
        K: Kernel<P>,
        A: ArrivesAs<P>,
    {
        let args = Arguments::of(args);
        self.schedule_of(&Bound::new(&kernel, &args).call(), target, false)
    }

    /// [`Launch::code_schedule`] with the values that have no instructions of their own (`defer` steps).
    ///
    /// # Errors
    /// As [`code_ptx`].
    ///
    /// # Panics
    /// As [`code_ptx`].
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// let x = ct::ArraySpec::<f32, 1>::new([1 << 20]);
    /// let double = |x: ArrayMut<f32, 1>| x.store(ct::bid(0), x.load(ct::bid(0), [1024]) * 2.0);
    /// let text = ct::Launch::new(1).code_full_schedule(double, (x.mutable(),), ct::Target::SM_80)?;
    /// assert!(text.contains("defer "), "{text}"); // the factor
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    pub fn code_full_schedule<K, A, P>(&self, kernel: K, args: A, target: Target) -> Result<String>
    where
        K: Kernel<P>,
        A: ArrivesAs<P>,
    {
        let args = Arguments::of(args);
        self.schedule_of(&Bound::new(&kernel, &args).call(), target, true)
    }

    #[track_caller]
    fn schedule_of(&self, call: &Call<'_>, target: Target, full: bool) -> Result<String> {
        check_hints(self.hints)?;
        let form = Form::of(Backend::Ptx, self.checks_on(Backend::Ptx)?.bounds);
        let module = traced_as(call, form)?.0;
        let text = if full { full_schedule } else { schedule };
        text(&module, target, self.hints, true)
    }

    /// [`code_ptx`] with the hints of this launch. Its grid does not matter.
    ///
    /// # Errors
    /// As [`code_ptx`].
    ///
    /// # Panics
    /// As [`code_ptx`].
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// let x = ct::ArraySpec::<f32, 1>::new([1 << 20]);
    /// let hints = ct::Hints::new().num_warps(8);
    /// let double = |x: ArrayMut<f32, 1>| x.store(ct::bid(0), x.load(ct::bid(0), [1024]) * 2.0);
    /// assert!(ct::Launch::new(1).hints(hints).code_ptx(double, (x.mutable(),), ct::Target::SM_80)?.contains("mul.rn.f32"));
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    pub fn code_ptx<K, A, P>(&self, kernel: K, args: A, target: Target) -> Result<String>
    where
        K: Kernel<P>,
        A: ArrivesAs<P>,
    {
        let args = Arguments::of(args);
        self.code_ptx_call(&Bound::new(&kernel, &args).call(), target)
    }

    /// As [`Launch::code_ptx`].
    #[track_caller]
    pub(super) fn code_ptx_call(&self, call: &Call<'_>, target: Target) -> Result<String> {
        check_hints(self.hints)?;
        let form = Form::of(Backend::Ptx, self.checks_on(Backend::Ptx)?.bounds);
        let code = generate(&traced_as(call, form)?.0, target, self.hints, Maps::Allowed)?;
        remarks::say_code(&code, code.min_blocks > 1);
        Ok(code.text)
    }
}

#[track_caller]
pub(super) fn traced(call: &Call<'_>) -> Result<(Module, Option<Requirements>)> {
    traced_as(call, Form::Plain)
}

#[track_caller]
fn traced_as(call: &Call<'_>, form: Form) -> Result<(Module, Option<Requirements>)> {
    let name = call.name();
    optimise(&name, call.trace(&name)?, form)
}
