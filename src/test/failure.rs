//! Failures of a case.

use super::arrays::array::Difference;
use super::instance::name_of;

/// The kind of a failure. A reduction preserves it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    /// A launch with all checks returned an error.
    Launch,
    /// The padding around an array was written.
    Padding,
    /// A result differs from the reference.
    Reference,
    /// A result depends on the order of the tile blocks.
    Order,
    /// A result depends on padding, or on the contents of an output before the launch.
    Memory,
    /// A result depends on the passes of the compiler.
    Passes,
    /// A law does not hold.
    Law,
    /// The device differs from the cpu back end.
    Device,
}

/// A failure of a case.
pub(super) struct Failure {
    pub kind: Kind,
    pub message: String,
    /// The number of the array, and the element that differs.
    pub place: Option<(usize, Difference)>,
    /// True if later launches may fail for the same reason, so that no reduction is possible.
    pub is_final: bool,
}

/// Returns the failure of a difference, with the beginning of its message.
pub(super) fn differs(kind: Kind, (number, difference): (usize, Difference), sentence: &str) -> Failure {
    let separator = if sentence.is_empty() { "" } else { ": " };
    let message = format!("{sentence}{separator}array `{}`: {}", name_of(number), difference.message);
    Failure { kind, message, place: Some((number, difference)), is_final: false }
}

impl Kind {
    /// Returns the beginning of a message.
    pub fn sentence(self) -> &'static str {
        match self {
            Kind::Launch | Kind::Reference | Kind::Padding => "",
            Kind::Order => "with the tile blocks in another order",
            Kind::Memory => "with other contents of outputs and of the padding around arrays",
            Kind::Passes => "with all passes of the compiler",
            Kind::Law => "law",
            Kind::Device => "on the GPU",
        }
    }
}
