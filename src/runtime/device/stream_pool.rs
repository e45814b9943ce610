//! Pools of streams for round-robin use.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::device::Device;
use super::stream::Stream;
use crate::error::{Error, Result};

/// Several streams of one device, returned round-robin: for work that may run at the same time.
///
/// ```
/// # use cutlet::doctest::*;
/// let device = ct::Device::cpu();
/// let pool = ct::StreamPool::new(device, 4)?;
/// let mut parts = (0..8).map(|_| device.zeros([64])).collect::<ct::Result<Vec<_>>>()?;
/// for part in &mut parts {
///     ct::Launch::new(1).stream(pool.next()).launch(|x: ArrayMut<i32, 1>| x.store(0, ct::ones([64])), (part,))?;
/// }
/// pool.synchronize()?;
/// # assert!(parts.iter().all(|part| part.to_vec().unwrap() == [1; 64]));
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Debug)]
pub struct StreamPool {
    streams: Vec<Stream>,
    next: AtomicUsize,
}

impl StreamPool {
    /// Makes streams of a device.
    ///
    /// # Errors
    /// [`Error::Argument`] for no streams; [`Error::Driver`] if earlier work on the device failed.
    ///
    /// ```
    /// # use cutlet as ct;
    /// assert!(ct::StreamPool::new(ct::Device::cpu(), 0).is_err());
    /// # ct::StreamPool::new(ct::Device::cpu(), 2)?;
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    pub fn new(device: Device, streams: usize) -> Result<StreamPool> {
        if streams == 0 {
            return Err(Error::argument("a pool of no streams: it needs one at least"));
        }
        let streams = (0..streams).map(|_| device.stream()).collect::<Result<_>>()?;
        Ok(StreamPool { streams, next: AtomicUsize::new(0) })
    }

    /// Returns the next stream, round-robin. May be called from any thread.
    ///
    /// ```
    /// # use cutlet as ct;
    /// let pool = ct::StreamPool::new(ct::Device::cpu(), 2)?;
    /// pool.next().synchronize()?;
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn next(&self) -> &Stream {
        &self.streams[self.next.fetch_add(1, Ordering::Relaxed) % self.streams.len()]
    }

    /// Returns all streams.
    ///
    /// ```
    /// # use cutlet as ct;
    /// let pool = ct::StreamPool::new(ct::Device::cpu(), 2)?;
    /// assert_eq!(pool.streams().len(), 2);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn streams(&self) -> &[Stream] {
        &self.streams
    }

    /// Waits until all work of all streams is complete.
    ///
    /// # Errors
    /// As [`Stream::synchronize`].
    ///
    /// ```
    /// # use cutlet as ct;
    /// ct::StreamPool::new(ct::Device::cpu(), 2)?.synchronize()?;
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn synchronize(&self) -> Result<()> {
        self.streams.iter().try_for_each(Stream::synchronize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_returned_round_robin() -> Result<()> {
        let pool = StreamPool::new(Device::cpu(), 3)?;
        let turns: Vec<_> = (0..6).map(|_| std::ptr::from_ref(pool.next())).collect();
        assert_eq!(turns[..3], turns[3..]);
        assert_eq!(turns[..3].iter().collect::<std::collections::HashSet<_>>().len(), 3);
        Ok(())
    }
}
