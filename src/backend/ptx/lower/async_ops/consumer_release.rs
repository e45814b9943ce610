//! Consumer release: arrives on the empty barriers of stages without a pending MMA.
//!
//! Stages that MMAs read are released by the wait for these MMAs (`state/mma_queue`). A
//! loop-carried MMA completes in the next iteration. The address of its full barrier is therefore
//! kept in a register across the back edge ([`ReleaseBarrier::Carried`]). The address 0 means that
//! there is nothing to release.
//!
//! [`ReleaseBarrier::Carried`]: crate::backend::ptx::lower::state::sync_state::ReleaseBarrier::Carried

use crate::backend::ptx::lower::{Lowered, Lowering};

impl Lowering<'_> {
    /// Releases the acquired stages of these channels, which no pending MMA reads.
    ///
    /// A stage that was a staging buffer is released after the TMA store of the warp has read it.
    pub fn release_channels(&mut self, channels: &[u32]) -> Lowered {
        if self
            .schedule
            .warp_spec
            .as_ref()
            .is_some_and(|warp_spec| channels.iter().any(|&channel| warp_spec.is_staging(channel)))
        {
            self.tma_store_wait()?;
            self.b.bar_warp_sync();
        }
        let releases = self.sync.take_releases(channels);
        self.release_stages(&releases, None);
        Ok(())
    }
}
