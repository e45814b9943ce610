//! Streams and events: order of work on one device, and time between points of it.
//!
//! On the cpu device, each call completes its work before the return, so the stream is always idle.

use std::fmt;
use std::time::{Duration, Instant};

use super::device::Device;
use super::gpu::{GpuEvent, StreamHandle};
use crate::error::{Error, Result};

/// A queue of work on one device, which executes its work in order.
///
/// A clone is cheap and refers to the same queue. Made with [`Device::stream`]; launches that name
/// no stream use [`Device::default_stream`]. Arrays may be used on all streams of their device: a
/// launch that uses an array waits for the conflicting work of other streams.
///
/// ```
/// let stream = cutlet::Device::cpu().stream()?;
/// stream.synchronize()?;
/// # Ok::<(), cutlet::Error>(())
/// ```
#[derive(Clone)]
pub struct Stream(StreamKind);

#[derive(Clone)]
enum StreamKind {
    Cpu,
    Gpu(StreamHandle),
}

impl Device {
    /// Returns the stream of launches and copies that name no other one.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// ct::Device::cpu().default_stream().synchronize()?;
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn default_stream(&self) -> Stream {
        Stream(match self.as_gpu() {
            None => StreamKind::Cpu,
            Some(gpu) => StreamKind::Gpu(gpu.default_stream().clone()),
        })
    }

    /// Makes a stream.
    ///
    /// # Errors
    /// [`Error::Driver`] if earlier work on the device failed.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let (device, mut x) = (ct::Device::cpu(), ct::Device::cpu().full([4], 1.0f32)?);
    /// let stream = device.stream()?;
    /// ct::Launch::new(1).stream(&stream).launch(|x: ArrayMut<f32, 1>| x.store(0, x.load(0, [4]) * 2.0), (&mut x,))?;
    /// assert_eq!(x.to_vec()?, [2.0; 4]); // in order, whichever stream wrote it
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn stream(&self) -> Result<Stream> {
        Ok(Stream(match self.as_gpu() {
            None => StreamKind::Cpu,
            Some(gpu) => StreamKind::Gpu(StreamHandle::new(gpu)?),
        }))
    }
}

impl Stream {
    /// Returns the device of this stream.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// assert_eq!(ct::Device::cpu().stream()?.device(), ct::Device::cpu());
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn device(&self) -> Device {
        match &self.0 {
            StreamKind::Cpu => Device::cpu(),
            StreamKind::Gpu(stream) => Device::from_gpu(stream.gpu),
        }
    }

    /// Waits until all work of this stream is complete.
    ///
    /// # Errors
    /// [`Error::Driver`] if this work, or earlier work on the device, failed; [`Error::Execution`]
    /// if an assertion failed; [`Error::Hung`] for waits beyond
    /// [`Hints::wait_limit`](crate::Hints::wait_limit).
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// ct::Device::cpu().stream()?.synchronize()?;
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn synchronize(&self) -> Result<()> {
        match &self.0 {
            StreamKind::Cpu => Ok(()),
            StreamKind::Gpu(stream) => stream.synchronize(),
        }
    }

    /// Returns an event that is reached when the present work of this stream is complete.
    ///
    /// # Errors
    /// [`Error::Driver`] if earlier work on the device failed.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let event = ct::Device::cpu().stream()?.record()?;
    /// event.synchronize()?;
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn record(&self) -> Result<Event> {
        Ok(Event(match &self.0 {
            StreamKind::Cpu => EventKind::Cpu(Instant::now()),
            StreamKind::Gpu(stream) => {
                let event = GpuEvent::new(stream.gpu, true)?;
                event.record(stream)?;
                EventKind::Gpu(event)
            }
        }))
    }

    /// Makes later work on this stream wait for an event.
    ///
    /// # Errors
    /// [`Error::Driver`] if earlier work on the device failed.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let (first, second) = (ct::Device::cpu().stream()?, ct::Device::cpu().stream()?);
    /// second.wait(&first.record()?)?; // what is queued on the second one from now on comes after it
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn wait(&self, event: &Event) -> Result<()> {
        match (&self.0, &event.0) {
            (StreamKind::Gpu(stream), EventKind::Gpu(event)) => {
                stream.gpu.make_current()?;
                event.hold_back(stream)
            }
            // The host executes the work of a cpu stream, so the host waits.
            (StreamKind::Cpu, _) => event.synchronize(),
            (StreamKind::Gpu(_), EventKind::Cpu(_)) => Ok(()),
        }
    }

    pub(crate) fn from_handle(stream: StreamHandle) -> Stream {
        Stream(StreamKind::Gpu(stream))
    }

    #[inline]
    pub(crate) fn as_gpu(&self) -> Option<&StreamHandle> {
        match &self.0 {
            StreamKind::Cpu => None,
            StreamKind::Gpu(stream) => Some(stream),
        }
    }

    /// Returns the CUDA stream handle (`CUstream`), null on the cpu device. Valid during the life
    /// of this object.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let stream = ct::Device::cpu().stream()?;
    /// println!("{:?}", stream.raw()); // a `CUstream` for calls of the driver
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn raw(&self) -> *mut std::ffi::c_void {
        match &self.0 {
            StreamKind::Cpu => std::ptr::null_mut(),
            StreamKind::Gpu(stream) => stream.raw.cast(),
        }
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("device", &self.device()).field("raw", &self.raw()).finish()
    }
}

/// A point in the work of a stream, made with [`Stream::record`].
///
/// ```
/// let stream = cutlet::Device::cpu().default_stream();
/// let start = stream.record()?;
/// let end = stream.record()?;
/// assert!(end.since(&start)?.as_secs() < 3600);
/// # Ok::<(), cutlet::Error>(())
/// ```
#[derive(Debug)]
pub struct Event(EventKind);

#[derive(Debug)]
enum EventKind {
    Cpu(Instant),
    Gpu(GpuEvent),
}

impl Event {
    pub(crate) fn as_gpu(&self) -> Option<&GpuEvent> {
        match &self.0 {
            EventKind::Cpu(_) => None,
            EventKind::Gpu(event) => Some(event),
        }
    }

    /// Waits until this point is reached.
    ///
    /// # Errors
    /// [`Error::Driver`] if work before it failed, [`Error::Execution`] if an assertion failed.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// ct::Device::cpu().stream()?.record()?.synchronize()?;
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn synchronize(&self) -> Result<()> {
        match &self.0 {
            EventKind::Cpu(_) => Ok(()),
            EventKind::Gpu(event) => {
                event.wait()?;
                event.gpu.failures.check()
            }
        }
    }

    /// Returns the time of the device from `start` to this event, and waits for both. The
    /// resolution on a GPU is about 0.5 µs.
    ///
    /// # Errors
    /// [`Error::Argument`] for events of two devices, [`Error::Driver`] if work before them failed.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let stream = ct::Device::cpu().stream()?;
    /// let start = stream.record()?;
    /// let end = stream.record()?;
    /// end.synchronize()?;
    /// println!("{:?}", end.since(&start)?);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    pub fn since(&self, start: &Event) -> Result<Duration> {
        match (&self.0, &start.0) {
            (EventKind::Cpu(end), EventKind::Cpu(start)) => Ok(end.saturating_duration_since(*start)),
            (EventKind::Gpu(end), EventKind::Gpu(start)) if std::ptr::eq(end.gpu, start.gpu) => {
                self.synchronize()?;
                start.wait()?;
                let mut milliseconds = 0.0f32;
                // SAFETY: both events are alive, recorded, and reached.
                unsafe {
                    end.gpu.driver.event_elapsed(&mut milliseconds, start.raw, end.raw)?;
                }
                Ok(Duration::from_secs_f64(f64::from(milliseconds.max(0.0)) / 1e3))
            }
            _ => Err(Error::argument("events of two devices have no time between them")),
        }
    }
}
