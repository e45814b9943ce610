//! Ranks, and sums over all of them. Knows no way to add up.

use cutlet as ct;
use cutlet::element::{Element, Number};

/// One of the devices that work together.
#[derive(Clone, Debug)]
pub struct Rank {
    /// Device of its arrays.
    pub device: ct::Device,
    /// Stream of its work.
    pub stream: ct::Stream,
}

/// Elements that can be added up over ranks.
pub trait Summed: Element + Number + cudarc::nccl::safe::NcclType {}

impl<T: Element + Number + cudarc::nccl::safe::NcclType> Summed for T {}

/// Ranks whose arrays can be added up.
pub trait AllReduce {
    /// The ranks, in their order.
    fn ranks(&self) -> &[Rank];

    /// Stores into each of these arrays, one of each rank and all of one shape, the sum of all. The
    /// sum is ordered after the earlier queued work on the arrays, and before later work.
    ///
    /// # Errors
    /// [`ct::Error::Argument`] for another number of arrays than of ranks, arrays of several
    /// shapes, or on other devices than their ranks; [`ct::Error::Driver`] where adding up fails.
    fn sum<T: Summed, const R: usize>(&self, parts: &mut [ct::DeviceArray<T, R>]) -> ct::Result<()>;
}

/// # Errors
/// Error of arrays that a sum over ranks does not accept.
#[track_caller]
pub fn check<T: Element, const R: usize>(ranks: &[Rank], parts: &[ct::DeviceArray<T, R>]) -> ct::Result<()> {
    if parts.len() != ranks.len() {
        let (parts, ranks) = (parts.len(), ranks.len());
        return Err(wrong(format!("{parts} arrays to add up for {ranks} ranks: one of each is needed")));
    }
    for (rank, part) in parts.iter().enumerate() {
        if part.shape() != parts[0].shape() {
            let (first, shape) = (parts[0].shape(), part.shape());
            return Err(wrong(format!(
                "the array of rank {rank} has the shape {shape:?}, that of rank 0 has {first:?}"
            )));
        }
        if part.device() != ranks[rank].device {
            let (own, of_rank) = (part.device(), ranks[rank].device);
            return Err(wrong(format!("the array of rank {rank} is on {own}, the rank on {of_rank}")));
        }
    }
    Ok(())
}

#[track_caller]
fn wrong(what: String) -> ct::Error {
    let place = std::panic::Location::caller();
    let location = ct::Location { file: place.file().into(), line: place.line(), column: place.column() };
    ct::Error::Argument(ct::Diagnostic::new(what, Some(location)))
}
