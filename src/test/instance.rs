//! A case with its arguments, and the launches of it.

use crate::util::collect::CollectVec as _;
use std::rc::Rc;

use super::args::SharedArray;
use super::arrays::arrangement::NAMES;
use super::arrays::array::{AnyArray, Difference};
use super::arrays::element::Tolerance;
use super::draw::{Case, Draw, Drawn};
use super::random::Random;
use crate::backend::cpu::{BlockOrder, Checks};
use crate::error::{Error, Result};
use crate::launch::{Grid, with_overrides};
use crate::runtime::Device;

/// The arguments of a case, and what runs with them.
pub(super) struct Instance<'s> {
    /// The grid of the kernel; `None` for a function that launches kernels.
    pub grid: Option<Grid>,
    pub arrays: Vec<SharedArray>,
    /// Returns the arguments as an expression of Rust, in which the function returns the arrays.
    #[allow(clippy::type_complexity)]
    pub expression: Box<dyn Fn(&mut dyn FnMut() -> String) -> String + 's>,
    pub launch: Box<dyn Fn(Device) -> Result<()> + 's>,
    pub reference: Option<Box<dyn Fn() + 's>>,
}

/// A kernel with the functions that draw its arguments and compute its reference.
pub(super) trait Subject {
    /// Returns the name of the kernel.
    fn name(&self) -> String;
    /// Draws the arguments of a case.
    fn instance<'s>(&'s self, draw: &mut Draw<'_>) -> Instance<'s>;
}

/// An instance whose arrays have contents and arrangements.
pub(super) struct Prepared<'s> {
    pub instance: Instance<'s>,
    pub drawn: Vec<Drawn>,
    pub is_rejected: bool,
}

/// Mode of a launch.
#[derive(Clone, Copy)]
pub(super) struct LaunchMode {
    pub device: Device,
    pub checks: Checks,
    pub order: BlockOrder,
    /// Variant of the poison in padding and outputs.
    pub variant: usize,
}

/// Elements of the compared arrays after a launch, by the number of the array.
pub(super) type Outputs = Vec<(usize, Vec<u64>)>;

/// A failure of a launch.
pub(super) struct LaunchFailure {
    pub message: String,
    pub cause: Cause,
}

/// The cause of a failure of a launch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Cause {
    /// The padding around an array was written.
    Padding,
    /// The device cannot run the kernel.
    Unsupported,
    /// A call of the driver failed. The context may be lost, so that later calls fail, too.
    Driver,
    /// Another error of the launch.
    Launch,
}

impl LaunchFailure {
    fn of(error: &Error) -> LaunchFailure {
        let cause = match error {
            Error::Unsupported(_) => Cause::Unsupported,
            Error::Driver { .. } => Cause::Driver,
            _ => Cause::Launch,
        };
        LaunchFailure { message: error.to_string(), cause }
    }
}

/// Draws the arguments, contents and arrangements of a case.
pub(super) fn prepare<'s>(subject: &'s dyn Subject, case: &Case) -> Prepared<'s> {
    let mut draw = Draw::new(case);
    let instance = subject.instance(&mut draw);
    let mut drawn = draw.drawn().to_vec();
    for (number, array) in instance.arrays.iter().enumerate() {
        let is_repeated = instance.arrays[..number].iter().any(|other| Rc::ptr_eq(array, other));
        assert!(!is_repeated, "an array of a property is two of its arguments: make another one");
    }
    let is_rejected = draw.is_rejected();
    for (number, array) in instance.arrays.iter().enumerate() {
        let mut array = array.borrow_mut();
        let name = name_of(number);
        let (arrangements, contents) = array.choices();
        let arranged = format!("{name}.arrangement");
        // Half of the arrays have no padding, so that an access outside of them is an error.
        let arrangement = draw.value(&arranged, 0, |random| match random.below(2) {
            0 => 0,
            _ => random.below(arrangements),
        });
        let filled = format!("{name}.content");
        let content = draw.value(&filled, 0, |random| [0, 1, 2, 2, 2, 3, 3, 3][random.below(8)]);
        let (arrangement, content) = (arrangement.min(arrangements - 1), content.min(contents - 1));
        array.set_up(arrangement, content, Random::named(case.seed, &format!("{name}.elements")));
        if let Some((shape, bits)) = case.contents.get(&number) {
            let resized = resized((shape, bits), &array.shape(), array.simple_bits()[0]);
            array.set_bits(&resized);
        }
        let entry = |name: String, value: usize, shown: &str| Drawn { name, value, least: 0, shown: shown.to_owned() };
        drawn.push(entry(arranged, arrangement, NAMES[arrangement]));
        drawn.push(entry(filled, content, ["zeros", "one number", "numbers", "numbers with special values"][content]));
    }
    if let Some(reference) = instance.reference.as_ref().filter(|_| !is_rejected) {
        reference();
    }
    Prepared { instance, drawn, is_rejected }
}

/// Returns contents for other extents: the last elements along each axis, and `fill` for elements
/// that do not exist.
fn resized((shape, bits): (&[usize], &[u64]), other: &[usize], fill: u64) -> Vec<u64> {
    if shape == other {
        return bits.to_vec();
    }
    let element = |mut flat: usize| {
        let mut index = vec![0; other.len()];
        for d in (0..other.len()).rev() {
            (index[d], flat) = (flat % other[d], flat / other[d]);
        }
        let mut at = 0;
        for (d, &extent) in shape.iter().enumerate() {
            at = at * extent + (index[d] + extent).checked_sub(other[d])?;
        }
        bits.get(at).copied()
    };
    (0..other.iter().product()).map(|flat| element(flat).unwrap_or(fill)).collect_vec()
}

/// Returns the name of an array in reports and programs: `a`, `b`, ….
pub(super) fn name_of(number: usize) -> String {
    char::from(b'a' + (number % 26) as u8).to_string()
}

/// Frees the arrays at the end of a launch.
struct Release<'a, 's>(&'a Prepared<'s>);

impl Drop for Release<'_, '_> {
    fn drop(&mut self) {
        self.0.for_each_array(|_, array| array.free());
    }
}

impl Prepared<'_> {
    /// Calls `visit` for each array with its number.
    pub fn for_each_array(&self, mut visit: impl FnMut(usize, &mut dyn AnyArray)) {
        for (number, array) in self.instance.arrays.iter().enumerate() {
            visit(number, &mut *array.borrow_mut());
        }
    }

    /// Calls `body` with the array of this number.
    pub fn with_array<X>(&self, number: usize, body: impl FnOnce(&mut dyn AnyArray) -> X) -> Option<X> {
        self.instance.arrays.get(number).map(|array| body(&mut *array.borrow_mut()))
    }

    /// Allocates the arrays, launches, and returns the compared arrays.
    ///
    /// Invariant: arrays are allocated only during this call, so no other launch has them as
    /// arguments.
    pub fn execute(&self, way: LaunchMode) -> std::result::Result<Outputs, LaunchFailure> {
        let failed = |error: Error| LaunchFailure::of(&error);
        let _release = Release(self);
        let mut uploaded = Ok(());
        self.for_each_array(|_, array| {
            if uploaded.is_ok() {
                uploaded = array.upload(way.device, way.variant);
            }
        });
        uploaded.map_err(failed)?;
        let launched = if way.device == Device::cpu() {
            with_overrides(way.checks, way.order, || (self.instance.launch)(way.device))
        } else {
            (self.instance.launch)(way.device)
        };
        launched.map_err(failed)?;
        let (mut outputs, mut fault) = (Vec::new(), None);
        self.for_each_array(|number, array| match array.download() {
            Err(error) if fault.is_none() => fault = Some(failed(error)),
            Ok((_, Some(message))) if fault.is_none() => {
                let message = format!("array `{}`: {message}", name_of(number));
                fault = Some(LaunchFailure { message, cause: Cause::Padding });
            }
            Ok((bits, None)) if array.is_checked() => outputs.push((number, bits)),
            _ => {}
        });
        fault.map_or(Ok(outputs), Err)
    }

    /// Returns the first difference of the outputs from the reference.
    pub fn difference(&self, outputs: &Outputs, tolerance: Option<Tolerance>) -> Option<(usize, Difference)> {
        self.instance.reference.as_ref()?;
        outputs.iter().find_map(|(number, bits)| {
            let difference = self.with_array(*number, |array| array.difference(bits, tolerance))??;
            Some((*number, difference))
        })
    }

    /// Returns the first difference of the outputs from those of another launch.
    pub fn difference_of(
        &self,
        outputs: &Outputs,
        others: &Outputs,
        tolerance: Option<Tolerance>,
    ) -> Option<(usize, Difference)> {
        outputs.iter().zip(others).find_map(|((number, bits), (_, other))| {
            let difference = self.with_array(*number, |array| array.difference_of(bits, other, tolerance))??;
            Some((*number, difference))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_elements_remain() {
        assert_eq!(resized((&[3], &[1, 2, 3]), &[2], 0), [2, 3]);
        assert_eq!(resized((&[3], &[1, 2, 3]), &[4], 0), [0, 1, 2, 3]);
        assert_eq!(resized((&[2, 3], &[1, 2, 3, 4, 5, 6]), &[1, 2], 0), [5, 6]);
        assert!(resized((&[2], &[1, 2]), &[0], 0).is_empty());
    }
}
