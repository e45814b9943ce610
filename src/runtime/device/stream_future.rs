//! Waiting for a stream without a blocked thread: a future that a callback of the driver wakes.
//!
//! The driver calls back when the queued work is complete or has failed. A waker runs code of an
//! executor, which may poll the task or drop it with its arrays. Both call the driver, which
//! forbids that inside of its callbacks. The callback therefore only sends to a thread, which wakes
//! the future. The thread is started with the first future, and never ends.

use std::ffi::c_void;
use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};

use super::gpu::{Gpu, GpuEvent, GpuStream, StreamHandle};
use super::stream::{Event, Stream};
use crate::error::{Error, Result};
use crate::runtime::driver::sys::CUstream;

/// The state that the driver and a future share.
#[derive(Default)]
struct Shared(Mutex<State>);

#[derive(Default)]
struct State {
    /// The status that the driver reported for the complete work; 0 is success.
    status: Option<u32>,
    waker: Option<Waker>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn finish(&self, status: u32) {
        let waker = {
            let mut state = self.state();
            state.status = Some(status);
            state.waker.take()
        };
        if let Some(waker) = waker {
            // After a panic of one executor, the thread continues to wake others.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| waker.wake()));
        }
    }
}

/// Complete work, and its status of the driver.
type Done = (Arc<Shared>, u32);

/// The channel to the thread that wakes futures.
static WAKES: OnceLock<Sender<Done>> = OnceLock::new();

/// Starts the thread that wakes futures, unless it exists.
///
/// # Errors
/// [`Error::Io`] if the system cannot start a thread.
fn start_waking() -> Result<()> {
    if WAKES.get().is_some() {
        return Ok(());
    }
    let (sender, done) = mpsc::channel::<Done>();
    let thread = std::thread::Builder::new().name("cutlet wakes".into());
    let started = thread.spawn(move || done.into_iter().for_each(|(shared, status)| shared.finish(status)));
    started.map_err(|source| Error::Io { path: "the thread that wakes futures".into(), source })?;
    // One of two threads that are started at the same time has no sender, and ends.
    let _ = WAKES.set(sender);
    Ok(())
}

/// The callback of the driver. Calls no function of the driver or of the user.
unsafe extern "C" fn finished(_stream: CUstream, status: u32, shared: *mut c_void) {
    // SAFETY: the pointer was made for this one call.
    let shared = unsafe { Arc::from_raw(shared.cast_const().cast::<Shared>()) };
    if let Some(wakes) = WAKES.get() {
        // The thread lives as long as the process.
        let _ = wakes.send((shared, status));
    }
}

/// Requests a call of the driver after the present work of a stream.
fn ask(stream: &GpuStream, shared: &Arc<Shared>) -> Result<()> {
    start_waking()?;
    stream.gpu.make_current()?;
    let given = Arc::into_raw(shared.clone());
    // SAFETY: the stream is alive; the driver calls once, also if the work fails.
    let asked =
        unsafe { stream.gpu.driver.stream_add_callback(stream.raw, finished, given.cast_mut().cast::<c_void>(), 0) };
    if asked.is_err() {
        // SAFETY: the driver will not call, so the handle still belongs to this function.
        drop(unsafe { Arc::from_raw(given) });
    }
    asked
}

/// A future of the present work of a stream at its creation. It is ready when this work is
/// complete.
///
/// Made by [`Stream::completion`], [`Stream::completion_with`], and by awaiting an [`Event`]. Any
/// executor (tokio, smol, a loop) can poll it. One thread of this crate wakes all futures of the
/// process. A waker may therefore call the driver, and should not block. The drop of a future
/// neither waits nor cancels work.
#[must_use = "a future does nothing unless it is awaited"]
pub struct StreamFuture<T> {
    wait: Result<Wait>,
    value: Option<T>,
}

/// The awaited state; none on the cpu device.
type Wait = Option<(Arc<Shared>, &'static Gpu)>;

impl<T> fmt::Debug for StreamFuture<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamFuture").field("is_taken", &self.value.is_none()).finish_non_exhaustive()
    }
}

impl<T> StreamFuture<T> {
    fn from_wait(wait: Result<Wait>, value: T) -> StreamFuture<T> {
        StreamFuture { wait, value: Some(value) }
    }
}

/// The value is only moved, never pinned.
impl<T> Unpin for StreamFuture<T> {}

impl<T> Future for StreamFuture<T> {
    type Output = Result<T>;

    /// # Panics
    /// If it was ready before.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        let ended = match std::mem::replace(&mut self.wait, Ok(None)) {
            Ok(Some((shared, gpu))) => {
                let mut state = shared.state();
                let Some(status) = state.status else {
                    state.waker = Some(context.waker().clone());
                    drop(state);
                    self.wait = Ok(Some((shared, gpu)));
                    return Poll::Pending;
                };
                gpu.driver.check("cuStreamAddCallback", status).and_then(|()| gpu.failures.check())
            }
            other => other.map(drop),
        };
        let value = self.value.take().expect("a future that was not ready before");
        Poll::Ready(ended.map(|()| value))
    }
}

impl Stream {
    /// Returns a future of the present work of this stream: [`Stream::synchronize`] without a
    /// blocked thread.
    ///
    /// # Errors
    /// When it is awaited: [`crate::Error::Driver`] if this work, or earlier work on the device,
    /// failed; [`crate::Error::Execution`] if an assertion failed.
    ///
    /// ```
    /// use cutlet as ct;
    ///
    /// async fn doubled(x: &mut ct::DeviceArray<f32, 1>) -> ct::Result<Vec<f32>> {
    ///     ct::launch(|x: ct::ArrayMut<f32, 1>| x.store(0, x.load(0, [4]) * 2.0), 1, (&mut *x,))?;
    ///     x.device().default_stream().completion().await?;
    ///     x.to_vec() // there is nothing left to wait for
    /// }
    ///
    /// // In place of an executor:
    /// let mut x = ct::Device::cpu().full([4], 1.5f32)?;
    /// let mut future = std::pin::pin!(doubled(&mut x));
    /// let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    /// let values = loop {
    ///     if let std::task::Poll::Ready(values) = future.as_mut().poll(&mut context) {
    ///         break values?;
    ///     }
    /// };
    /// assert_eq!(values, [3.0; 4]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn completion(&self) -> StreamFuture<()> {
        self.completion_with(())
    }

    /// Returns a future as [`Stream::completion`], with a value that it keeps and returns, for
    /// example the arrays of the work. An array that is dropped earlier is freed after the work.
    ///
    /// # Errors
    /// As [`Stream::completion`].
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let stream = ct::Device::cpu().default_stream();
    /// let mut x = ct::Device::cpu().zeros([4])?;
    /// ct::launch(|x: ArrayMut<i32, 1>| x.store(0, ct::ones([4])), 1, (&mut x,))?;
    /// let future = stream.completion_with(x); // an executor may have it: it borrows nothing
    /// # let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    /// # let std::task::Poll::Ready(x) = std::pin::pin!(future).poll(&mut context) else { panic!() };
    /// # assert_eq!(x?.to_vec()?, [1; 4]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn completion_with<T>(&self, value: T) -> StreamFuture<T> {
        StreamFuture::from_wait(self.as_gpu().map(wait_for).transpose(), value)
    }
}

fn wait_for(stream: &StreamHandle) -> Result<(Arc<Shared>, &'static Gpu)> {
    let shared = Arc::new(Shared::default());
    ask(stream, &shared)?;
    Ok((shared, stream.gpu))
}

/// Makes an event awaitable: `event.await?`.
///
/// ```
/// # use cutlet as ct;
/// async fn after(event: ct::Event) -> ct::Result<()> {
///     event.await
/// }
/// # let event = ct::Device::cpu().default_stream().record()?;
/// # let mut context = std::task::Context::from_waker(std::task::Waker::noop());
/// # assert!(std::pin::pin!(after(event)).poll(&mut context).is_ready());
/// # Ok::<(), ct::Error>(())
/// ```
impl IntoFuture for Event {
    type Output = Result<()>;
    type IntoFuture = StreamFuture<()>;

    fn into_future(self) -> StreamFuture<()> {
        (&self).into_future()
    }
}

impl IntoFuture for &Event {
    type Output = Result<()>;
    type IntoFuture = StreamFuture<()>;

    fn into_future(self) -> StreamFuture<()> {
        let wait = |event: &GpuEvent| {
            // The driver calls back for streams: this one has only the event before the call, and
            // is dropped after the call is queued.
            let stream = StreamHandle::new(event.gpu)?;
            event.hold_back(&stream)?;
            wait_for(&stream)
        };
        StreamFuture::from_wait(self.as_gpu().map(wait).transpose(), ())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::task::Wake;
    use std::time::Duration;

    use super::*;
    use crate::runtime::Device;
    use crate::runtime::tests::{LONG, N, add, gpu, load};

    /// A waker that sends to a channel.
    struct Tells(mpsc::Sender<()>);

    impl Wake for Tells {
        fn wake(self: Arc<Self>) {
            let _ = self.0.send(());
        }
    }

    /// Runs a future to its end, and returns the number of polls. Fails if it is not woken.
    fn block_on<F: Future>(future: F) -> (F::Output, u32) {
        let (tell, told) = mpsc::channel();
        let waker = Waker::from(Arc::new(Tells(tell)));
        let mut future = std::pin::pin!(future);
        for polls in 1.. {
            if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return (output, polls);
            }
            told.recv_timeout(Duration::from_secs(20)).expect("the future is woken");
        }
        unreachable!()
    }

    #[test]
    fn on_the_cpu_device_all_is_done() -> Result<()> {
        let stream = Device::cpu().stream()?;
        let (value, polls) = block_on(stream.completion_with(7));
        assert_eq!((value?, polls), (7, 1));
        block_on(stream.record()?.into_future()).0
    }

    /// Returns a state that this waker waits for, and the call that the driver makes about it.
    fn waiting(waker: Waker) -> Result<(Arc<Shared>, impl FnOnce(u32) + Send)> {
        start_waking()?;
        let shared = Arc::new(Shared::default());
        shared.state().waker = Some(waker);
        let given = Arc::into_raw(shared.clone()) as usize;
        // SAFETY: the pointer is that of a shared state, passed for this one call.
        Ok((shared, move |status| unsafe { finished(std::ptr::null_mut(), status, given as *mut c_void) }))
    }

    #[test]
    fn the_driver_calls_and_another_thread_wakes() -> Result<()> {
        /// A waker that reports its thread, and blocks until it is released.
        struct Wakes(mpsc::Sender<Option<String>>, Mutex<mpsc::Receiver<()>>);
        impl Wake for Wakes {
            fn wake(self: Arc<Self>) {
                let _ = self.0.send(std::thread::current().name().map(str::to_owned));
                let _ = self.1.lock().expect("no panic").recv_timeout(Duration::from_secs(20));
            }
        }
        let ((tell, told), (go, on)) = (mpsc::channel(), mpsc::channel());
        let (first, call) = waiting(Waker::from(Arc::new(Wakes(tell, Mutex::new(on)))))?;
        // The call of the driver returns although the waker blocks.
        call(0);
        assert_eq!(told.recv_timeout(Duration::from_secs(20)).expect("it is woken").as_deref(), Some("cutlet wakes"));
        assert_eq!(first.state().status, Some(0));
        go.send(()).expect("it waits");
        // A second call after it, and one whose waker panics.
        struct Panics;
        impl Wake for Panics {
            fn wake(self: Arc<Self>) {
                std::panic::resume_unwind(Box::new("of an executor"));
            }
        }
        let (panics, call) = waiting(Waker::from(Arc::new(Panics)))?;
        call(700);
        let (tell, told) = mpsc::channel();
        let (last, call) = waiting(Waker::from(Arc::new(Tells(tell))))?;
        call(1);
        told.recv_timeout(Duration::from_secs(20)).expect("it is woken after that");
        assert_eq!((panics.state().status, last.state().status), (Some(700), Some(1)));
        assert_eq!(Arc::strong_count(&panics), 1, "the driver's handle went");
        Ok(())
    }

    /// A wake-up drops the task of an ended executor, or polls it in place. Both call the driver.
    #[test]
    fn wakers_may_call_the_driver() -> Result<()> {
        let Some(device) = gpu() else { return Ok(()) };
        /// A waker that works with an array.
        struct Works(Mutex<Option<crate::DeviceArray<i32, 1>>>, mpsc::Sender<Result<Vec<i32>>>);
        impl Wake for Works {
            fn wake(self: Arc<Self>) {
                let array = self.0.lock().expect("no panic").take();
                let _ = self.1.send(array.expect("woken once").to_vec());
            }
        }
        let (kernel, stream) = (load(device)?, device.stream()?);
        let mut data = device.zeros([N])?;
        add(&kernel, &mut data, &stream, LONG)?;
        let (tell, told) = mpsc::channel();
        let waker = Waker::from(Arc::new(Works(Mutex::new(Some(device.full([8], 3)?)), tell)));
        let mut future = std::pin::pin!(stream.completion());
        assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        assert_eq!(told.recv_timeout(Duration::from_secs(20)).expect("it is woken")?, [3; 8]);
        Ok(())
    }

    #[test]
    fn work_of_a_gpu_wakes() -> Result<()> {
        let Some(device) = gpu() else { return Ok(()) };
        let (kernel, stream) = (load(device)?, device.stream()?);
        let mut data = device.zeros([N])?;
        add(&kernel, &mut data, &stream, LONG)?;
        let event = stream.record()?;
        let (data, polls) = block_on(stream.completion_with(data));
        assert_eq!(data?.to_vec()?, [1; N]);
        assert_eq!(polls, 2, "once before the end, once after it");
        block_on((&event).into_future()).0?;
        // A future that is dropped, and a stream that is dropped before its end.
        let mut data = device.zeros([N])?;
        add(&kernel, &mut data, &stream, LONG)?;
        drop(stream.completion());
        let future = stream.completion();
        drop(stream);
        block_on(future).0?;
        assert_eq!(data.to_vec()?, [1; N]);
        Ok(())
    }
}
