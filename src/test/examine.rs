//! The examination of one case: launches with checks, in another order, with other padding, the
//! laws, and the device.

use super::arrays::element::Tolerance;
use super::draw::Case;
use super::failure::{Failure, Kind, differs};
use super::instance::{Cause, LaunchMode, Outputs, Prepared, Subject, prepare};
use super::laws::Law;
use crate::backend::cpu::{BlockOrder, Checks};
use crate::runtime::Device;

/// Requirements of a property, apart from its kernel.
pub(super) struct Requirements {
    pub laws: Vec<Law>,
    pub tolerance: Option<Tolerance>,
    pub device: Option<Device>,
}

/// The result of a case.
pub(super) enum Verdict {
    Passed,
    Rejected,
    Failed(Failure),
}

/// Runs a case in all modes of a launch.
pub(super) fn examine(subject: &dyn Subject, case: &Case, required: &Requirements) -> Verdict {
    let prepared = prepare(subject, case);
    if prepared.is_rejected {
        return Verdict::Rejected;
    }
    match first_failure(subject, &prepared, case, required) {
        Some(failure) => Verdict::Failed(failure),
        None => Verdict::Passed,
    }
}

fn first_failure(
    subject: &dyn Subject,
    prepared: &Prepared<'_>,
    case: &Case,
    required: &Requirements,
) -> Option<Failure> {
    let tolerance = required.tolerance;
    let checked = LaunchMode { device: Device::cpu(), checks: Checks::all(), order: BlockOrder::Grid, variant: 0 };
    let outputs = match prepared.execute(checked) {
        Ok(outputs) => outputs,
        Err(failure) => {
            let kind = if failure.cause == Cause::Padding { Kind::Padding } else { Kind::Launch };
            return Some(Failure { kind, message: failure.message, place: None, is_final: false });
        }
    };
    if let Some(place) = prepared.difference(&outputs, tolerance) {
        return Some(differs(Kind::Reference, place, ""));
    }
    let order = if case.seed.is_multiple_of(2) { BlockOrder::Reverse } else { BlockOrder::Permuted(case.seed) };
    let other = LaunchMode { checks: Checks::none(), order, variant: 1, ..checked };
    let failure = compared(prepared, other, &outputs, tolerance, Kind::Order)
        .map(|failure| attributed(prepared, (checked, other), &outputs, tolerance).unwrap_or(failure))
        .or_else(|| required.laws.iter().find_map(|law| law.violation(subject, prepared, case, tolerance)));
    failure.or_else(|| {
        let device = required.device?;
        compared(prepared, LaunchMode { device, ..checked }, &outputs, tolerance, Kind::Device)
    })
}

/// Returns the failure of a launch that must have the results of the launch with all checks.
fn compared(
    prepared: &Prepared<'_>,
    way: LaunchMode,
    outputs: &Outputs,
    tolerance: Option<Tolerance>,
    kind: Kind,
) -> Option<Failure> {
    let again = match prepared.execute(way) {
        Ok(again) => again,
        Err(failure) if kind == Kind::Device && failure.cause == Cause::Unsupported => return None,
        Err(failure) => {
            let message = format!("{}: {}", kind.sentence(), failure.message);
            let is_padding = failure.cause == Cause::Padding && kind != Kind::Device;
            let kind = if is_padding { Kind::Padding } else { kind };
            return Some(Failure { kind, message, place: None, is_final: failure.cause == Cause::Driver });
        }
    };
    let place = match prepared.instance.reference {
        Some(_) => prepared.difference(&again, tolerance),
        None => prepared.difference_of(&again, outputs, tolerance),
    };
    place.map(|place| differs(kind, place, kind.sentence()))
}

/// Returns the failure of a launch that has only one of the differences of the second mode.
fn attributed(
    prepared: &Prepared<'_>,
    (checked, other): (LaunchMode, LaunchMode),
    outputs: &Outputs,
    tolerance: Option<Tolerance>,
) -> Option<Failure> {
    let alone = [
        (LaunchMode { variant: other.variant, ..checked }, Kind::Memory),
        (LaunchMode { order: other.order, ..checked }, Kind::Order),
        (LaunchMode { checks: other.checks, ..checked }, Kind::Passes),
    ];
    alone.into_iter().find_map(|(way, kind)| compared(prepared, way, outputs, tolerance, kind))
}
