//! Sums by NCCL, through cudarc: on the arrays where they are, in the order of the ranks' streams.

use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaStream, DriverError};
use cudarc::nccl::result::NcclError;
use cudarc::nccl::safe::{Comm, ReduceOp, group_end, group_start};
use cutlet as ct;
use cutlet::foreign::cudarc::{lend_mut, stream};

use crate::ranks::{AllReduce, Rank, Summed, check};

/// Adds to the sums that earlier calls queue in a group.
type Queue<'a> = &'a mut dyn FnMut() -> Result<(), NcclError>;

/// Ranks on GPUs, of this process and this thread, with a communicator of NCCL.
#[derive(Debug)]
pub struct Nccl {
    ranks: Vec<Rank>,
    streams: Vec<Arc<CudaStream>>,
    communicators: Vec<Comm>,
}

impl Nccl {
    /// A rank on each of these GPUs, all of them different.
    ///
    /// # Errors
    /// [`ct::Error::NoDevice`] where one is missing, or the library of NCCL; [`ct::Error::Driver`]
    /// where one of both refuses.
    pub fn new(ordinals: &[usize]) -> ct::Result<Nccl> {
        let devices = ordinals.iter().map(|&at| ct::Device::gpu(at)).collect::<ct::Result<Vec<_>>>()?;
        // SAFETY: opening the library runs its own initialisation alone.
        if !unsafe { cudarc::nccl::sys::is_culib_present() } {
            return Err(ct::Error::NoDevice(
                "there is no libnccl.so (cudarc looks for this name, or one that ends with the version of CUDA, not for \
                 libnccl.so.2): put a link of that name into a folder of LD_LIBRARY_PATH"
                    .into(),
            ));
        }
        let open = |&ordinal: &usize| CudaContext::new(ordinal)?.new_stream();
        let streams = ordinals.iter().map(open).collect::<Result<Vec<_>, _>>().map_err(of_driver)?;
        let communicators = Comm::from_devices(streams.clone()).map_err(|error| of_nccl("ncclCommInitAll", error))?;
        let rank = |(device, theirs)| Ok(Rank { device, stream: stream(theirs)? });
        let ranks = devices.into_iter().zip(&streams).map(rank).collect::<ct::Result<_>>()?;
        Ok(Nccl { ranks, streams, communicators })
    }

    /// The version of the library, as it writes it: 22809 for 2.28.9.
    ///
    /// # Errors
    /// [`ct::Error::Driver`] if the library does not report one.
    pub fn version(&self) -> ct::Result<i32> {
        cudarc::nccl::result::get_nccl_version().map_err(|error| of_nccl("ncclGetVersion", error))
    }
}

impl AllReduce for Nccl {
    fn ranks(&self) -> &[Rank] {
        &self.ranks
    }

    #[track_caller]
    fn sum<T: Summed, const R: usize>(&self, parts: &mut [ct::DeviceArray<T, R>]) -> ct::Result<()> {
        check(&self.ranks, parts)?;
        borrow(&self.streams, &self.communicators, parts, &mut || Ok(()))
    }
}

/// Borrows all arrays before the group begins: if one rank has queued its part, all other ranks
/// must. Each array is borrowed until the end of the group, when its sum is on the stream.
fn borrow<T: Summed, const R: usize>(
    streams: &[Arc<CudaStream>],
    communicators: &[Comm],
    parts: &mut [ct::DeviceArray<T, R>],
    queue: Queue<'_>,
) -> ct::Result<()> {
    let ([theirs, streams @ ..], [communicator, communicators @ ..], [part, parts @ ..]) =
        (streams, communicators, parts)
    else {
        return grouped(queue);
    };
    lend_mut(part, theirs, |mut view| {
        borrow(streams, communicators, parts, &mut || {
            queue()?;
            communicator.all_reduce_in_place(&mut view, &ReduceOp::Sum).map(drop)
        })
    })?
}

/// A group in one thread: its queued work begins together, so that no rank waits for a later one.
/// If queueing fails, no work of the group begins.
fn grouped(queue: Queue<'_>) -> ct::Result<()> {
    group_start().map_err(|error| of_nccl("ncclGroupStart", error))?;
    let queued = queue().map_err(|error| of_nccl("ncclAllReduce", error));
    let ended = group_end().map(drop).map_err(|error| of_nccl("ncclGroupEnd", error));
    queued.and(ended)
}

fn of_nccl(call: &'static str, error: NcclError) -> ct::Error {
    ct::Error::Driver { call, code: format!("{:?}", error.0), text: "NCCL_DEBUG=INFO has NCCL say more".into() }
}

fn of_driver(error: DriverError) -> ct::Error {
    ct::Error::Driver { call: "cuStreamCreate", code: format!("{:?}", error.0), text: "a call of cudarc".into() }
}

impl Drop for Nccl {
    fn drop(&mut self) {
        // cudarc aborts communicators, and with them sums that still run.
        for rank in &self.ranks {
            let _ = rank.stream.synchronize();
        }
    }
}
